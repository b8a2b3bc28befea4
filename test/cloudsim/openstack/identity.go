// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"time"
)

const actionLogin = "identity:create_token"

type domainRef struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// right reports whether it is the domain there is, by name or by id.
func (d *domainRef) right() bool {
	return d != nil && (d.Name == Domain || d.ID == domainID)
}

const domainID = "default"

// authRequest is the body of POST /v3/auth/tokens (Identity API v3,
// "Password authentication with scoped authorization" and "Authenticating with
// an Application Credential").
type authRequest struct {
	Auth struct {
		Identity struct {
			Methods  []string `json:"methods"`
			Password *struct {
				User struct {
					Name     string     `json:"name"`
					ID       string     `json:"id"`
					Domain   *domainRef `json:"domain"`
					Password string     `json:"password"`
				} `json:"user"`
			} `json:"password"`
			AppCred *struct {
				ID     string `json:"id"`
				Secret string `json:"secret"`
			} `json:"application_credential"`
		} `json:"identity"`
		Scope *struct {
			Project *struct {
				ID     string     `json:"id"`
				Name   string     `json:"name"`
				Domain *domainRef `json:"domain"`
			} `json:"project"`
		} `json:"scope"`
	} `json:"auth"`
}

// right reports whether somebody may log in. An application credential has the
// scope in itself and takes no other.
func (a *authRequest) right() bool {
	id, scope := a.Auth.Identity, a.Auth.Scope
	if id.AppCred != nil {
		return len(id.Methods) == 1 && id.Methods[0] == "application_credential" && id.AppCred.ID == AppCredID && id.AppCred.Secret == AppCredSecret && scope == nil
	}
	if len(id.Methods) != 1 || id.Methods[0] != "password" || id.Password == nil {
		return false
	}
	u := id.Password.User
	if u.Name != User || u.Password != Password || !u.Domain.right() || scope == nil || scope.Project == nil {
		return false
	}
	p := scope.Project
	return p.ID == ProjectID || p.Name == Project && p.Domain.right()
}

func (c *Cloud) identityRoutes() {
	c.handle("POST /identity/v3/auth/tokens", actionLogin, nil, func(k *call) {
		var a authRequest
		if !k.read(&a) {
			return
		}
		if cred := a.Auth.Identity.AppCred; cred != nil && cred.ID != AppCredID {
			k.fail(http.StatusNotFound, "Not Found", "Could not find Application Credential: "+cred.ID+".")
			return
		}
		if !a.right() {
			k.fail(http.StatusUnauthorized, "Unauthorized", "The request you have made requires authentication.")
			return
		}
		token, now := newID(), time.Now()
		c.tokens[token] = now.Add(time.Hour)
		k.out.Header().Set("X-Subject-Token", token)
		k.answer(http.StatusCreated, map[string]any{"token": map[string]any{
			"methods": a.Auth.Identity.Methods, "issued_at": now.UTC().Format(time.RFC3339), "expires_at": now.Add(time.Hour).UTC().Format(time.RFC3339),
			"project": map[string]any{"id": ProjectID, "name": Project, "domain": domainRef{domainID, Domain}},
			"user":    map[string]any{"id": "u1", "name": User, "domain": domainRef{domainID, Domain}},
			"catalog": catalogue(k.r.Host),
		}})
	})
}

// catalogue returns the services by the name that they are asked by.
func catalogue(host string) []map[string]any {
	var services []map[string]any
	for _, service := range []struct{ kind, name, path string }{
		{"compute", "nova", "/compute/v2.1"}, {"network", "neutron", "/network/"}, {"image", "glance", "/image/"}, {"volumev3", "cinderv3", v3}, {"identity", "keystone", "/identity/v3"},
	} {
		services = append(services, map[string]any{"type": service.kind, "name": service.name, "id": newID(), "endpoints": []map[string]any{
			{"id": newID(), "interface": "public", "region": Region, "region_id": Region, "url": "https://" + host + service.path},
		}})
	}
	return services
}

// versions serves a service's discovery document, which needs no token.
func (c *Cloud) versions(path, id string) {
	c.mux.HandleFunc("GET "+path+"{$}", func(out http.ResponseWriter, r *http.Request) {
		k := &call{cloud: c, out: out, r: r}
		k.answer(http.StatusOK, map[string]any{"versions": []map[string]any{
			{"id": id, "status": "CURRENT", "links": []map[string]string{{"rel": "self", "href": "https://" + r.Host + path}}},
		}})
	})
}
