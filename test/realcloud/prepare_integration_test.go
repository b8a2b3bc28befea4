// SPDX-License-Identifier: Apache-2.0

//go:build integration

package realcloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// The services' addresses.
const (
	identity = "http://127.0.0.1:5000/v3"
	compute  = "http://127.0.0.1:8774/v2.1"
	network  = "http://127.0.0.1:9696/v2.0"
	images   = "http://127.0.0.1:9292/v2"
)

// api speaks to the services as one user, in words that are not the provider's.
type api struct{ token, user, project string }

func (a *api) send(method, url, kind string, body []byte) (http.Header, map[string]any, error) {
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("X-Auth-Token", a.token)
	r.Header.Set("Content-Type", kind)
	r.Header.Set("OpenStack-API-Version", "compute 2.67")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode >= 300 {
		return nil, nil, fmt.Errorf("%s %s: %s: %.500s, %w", method, url, reply.Status, text, err)
	}
	out := map[string]any{}
	if len(text) > 0 {
		err = json.Unmarshal(text, &out)
	}
	return reply.Header, out, err
}

func (a *api) call(method, url string, body any) (map[string]any, error) {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	_, out, err := a.send(method, url, "application/json", text)
	return out, err
}

type object = map[string]any

func (a *api) must(t *testing.T, method, url string, body any) object {
	t.Helper()
	out, err := a.call(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (a *api) get(t *testing.T, url string) object {
	t.Helper()
	return a.must(t, http.MethodGet, url, nil)
}

// make returns the id of a new thing.
func (a *api) make(t *testing.T, url, kind string, thing object) string {
	t.Helper()
	out := a.must(t, http.MethodPost, url, object{kind: thing})
	id, _ := out[kind].(object)["id"].(string)
	return id
}

func (a *api) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !is(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatalf("not within five minutes: %s", what)
		}
	}
}

func login(t *testing.T, user, password, project string) *api {
	t.Helper()
	domain := object{"id": "default"}
	text, _ := json.Marshal(object{"auth": object{
		"identity": object{"methods": []string{"password"}, "password": object{"user": object{"name": user, "password": password, "domain": domain}}},
		"scope":    object{"project": object{"name": project, "domain": domain}},
	}})
	header, body, err := (&api{}).send(http.MethodPost, identity+"/auth/tokens", "application/json", text)
	if err != nil {
		t.Fatal(err)
	}
	token := body["token"].(object)
	return &api{header.Get("X-Subject-Token"), token["user"].(object)["id"].(string), token["project"].(object)["id"].(string)}
}

// prepare makes users, the catalogue, networks, flavors and an image.
func prepare(t *testing.T) *plane {
	o := &plane{admin: login(t, "admin", "admin", "admin")}
	o.catalogue(t)
	o.project = o.user(t, "pods", "s3cret", "pods", "member")
	o.pods = login(t, "pods", "s3cret", "pods")
	o.networks(t)
	o.machines(t)
	credentials := identity + "/users/" + o.pods.user + "/application_credentials"
	o.ended = o.pods.make(t, credentials, "application_credential", object{"name": "ended", "secret": "secret"})
	o.pods.must(t, http.MethodDelete, credentials+"/"+o.ended, nil)
	return o
}

func (o *plane) user(t *testing.T, name, password, project string, roles ...string) string {
	t.Helper()
	id := o.admin.make(t, identity+"/projects", "project", object{"name": project, "domain_id": "default"})
	o.member(t, name, password, id, roles...)
	return id
}

func (o *plane) member(t *testing.T, name, password, project string, roles ...string) {
	t.Helper()
	user := o.admin.make(t, identity+"/users", "user", object{"name": name, "password": password, "domain_id": "default"})
	for _, role := range roles {
		found := o.admin.get(t, identity+"/roles?name="+role)["roles"].([]any)
		if len(found) == 0 {
			found = []any{object{"id": o.admin.make(t, identity+"/roles", "role", object{"name": role})}}
		}
		o.admin.must(t, http.MethodPut, fmt.Sprintf("%s/projects/%s/users/%s/roles/%s", identity, project, user, found[0].(object)["id"]), nil)
	}
}

func (o *plane) catalogue(t *testing.T) {
	t.Helper()
	services := o.admin.make(t, identity+"/projects", "project", object{"name": "service", "domain_id": "default"})
	for _, name := range []string{"glance", "nova", "placement", "neutron"} {
		o.member(t, name, "service", services, "admin", "service")
	}
	for kind, url := range map[string]string{"image": "http://127.0.0.1:9292", "compute": compute, "placement": "http://127.0.0.1:8778", "network": "http://127.0.0.1:9696"} {
		service := o.admin.make(t, identity+"/services", "service", object{"name": kind, "type": kind})
		for _, face := range []string{"public", "internal"} {
			o.admin.make(t, identity+"/endpoints", "endpoint", object{"service_id": service, "interface": face, "region_id": "RegionOne", "url": url})
		}
	}
}

func (o *plane) networks(t *testing.T) {
	t.Helper()
	o.network = o.pods.make(t, network+"/networks", "network", object{"name": "pods"})
	o.subnet = o.pods.make(t, network+"/subnets", "subnet", object{"network_id": o.network, "cidr": "10.11.0.0/20", "ip_version": 4})
	o.external = o.admin.make(t, network+"/networks", "network", object{"name": "external", "router:external": true})
	o.admin.make(t, network+"/subnets", "subnet", object{"network_id": o.external, "cidr": "172.24.0.0/20", "ip_version": 4})
	router := o.pods.make(t, network+"/routers", "router", object{"name": "r", "external_gateway_info": object{"network_id": o.external}})
	o.pods.must(t, http.MethodPut, network+"/routers/"+router+"/add_router_interface", object{"subnet_id": o.subnet})
	o.group = o.pods.make(t, network+"/security-groups", "security_group", object{"name": "pods"})
	o.admin.must(t, http.MethodPut, network+"/quotas/"+o.project, object{"quota": object{"port": 500, "floatingip": 200}})
}

func (o *plane) machines(t *testing.T) {
	t.Helper()
	for n, name := range []string{"m1.tiny", "m1.small", "m1.medium", "m1.large"} {
		o.admin.make(t, compute+"/flavors", "flavor", object{"name": name, "vcpus": []int{1, 1, 2, 4}[n], "ram": 512 << n, "disk": 1, "id": fmt.Sprint(n + 1)})
	}
	o.admin.must(t, http.MethodPut, compute+"/os-quota-sets/"+o.project, object{"quota_set": object{"instances": 200, "cores": 2000, "ram": 2000000}})
	o.pods.must(t, http.MethodPost, compute+"/os-keypairs", object{"keypair": object{"name": "k1"}})
	image := o.pods.must(t, http.MethodPost, images+"/images", object{"name": "podvm", "disk_format": "raw", "container_format": "bare", "visibility": "private"})
	o.image, _ = image["id"].(string)
	if _, _, err := o.pods.send(http.MethodPut, images+"/images/"+o.image+"/file", "application/octet-stream", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
}
