// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Who may log in: an application with a secret and a federated credential.
const (
	TenantID     = "11111111-2222-3333-4444-555555555555"
	ClientID     = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
	ClientSecret = "sim~secret-Value.0123456789"
	// Subject and Audience are of the federated credential.
	Subject  = "system:serviceaccount:confidential-containers-system:cloud-api-adaptor"
	Audience = "api://AzureADTokenExchange"
	// Issuer is the cluster's.
	Issuer = "https://oidc.cluster.example/"
	// scope is what tokens for the resource manager are asked with.
	scope = "https://management.core.windows.net//.default"
)

// identity is the token endpoint.
type identity struct {
	issuer *rsa.PrivateKey // the cluster's
	secret []byte          // signs access tokens
}

// issuerKey and forgersKey are one each for all clouds of a test program: making
// one takes a tenth of a second of processor time.
var issuerKey, forgersKey = sync.OnceValue(newKey), sync.OnceValue(newKey)

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return key
}

func newIdentity() *identity {
	secret := make([]byte, 32)
	rand.Read(secret)
	return &identity{issuerKey(), secret}
}

// Claims are of a federated token; zero ones are right.
type Claims struct {
	Issuer, Subject, Audience string
	// Issued and Expires are relative to now; 0 are now and in an hour.
	Issued, Expires time.Duration
	// Forged signs with another key.
	Forged bool
}

// FederatedToken is a service account token of the cluster.
func (c *Cloud) FederatedToken(t testing.TB, claims Claims) string {
	t.Helper()
	or := func(text, standard string) string {
		if text == "" {
			return standard
		}
		return text
	}
	if claims.Expires == 0 {
		claims.Expires = time.Hour
	}
	now := time.Now()
	body := map[string]any{
		"iss": or(claims.Issuer, Issuer), "sub": or(claims.Subject, Subject), "aud": []string{or(claims.Audience, Audience)},
		"iat": now.Add(claims.Issued).Unix(), "nbf": now.Add(claims.Issued).Unix(), "exp": now.Add(claims.Expires).Unix(),
	}
	key := c.identity.issuer
	if claims.Forged {
		key = forgersKey()
	}
	signed := encode(map[string]any{"alg": "RS256", "typ": "JWT", "kid": "sim"}) + "." + encode(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts and numbers
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// refusal is an error of the token endpoint ("Microsoft Entra authentication
// and authorization error codes", learn.microsoft.com).
type refusal struct {
	status            int
	kind, description string
}

var (
	errGrant     = refusal{400, "unsupported_grant_type", "AADSTS70003: The app requested an unsupported grant type."}
	errScope     = refusal{400, "invalid_scope", "AADSTS70011: The provided value for the input parameter 'scope' is not valid."}
	errApp       = refusal{400, "unauthorized_client", "AADSTS700016: Application with identifier was not found in the directory."}
	errSecret    = refusal{401, "invalid_client", "AADSTS7000215: Invalid client secret provided."}
	errExpired   = refusal{401, "invalid_client", "AADSTS7000222: The provided client secret keys for app are expired."}
	errAssertion = refusal{401, "invalid_client", "AADSTS700213: No matching federated identity record found for presented assertion."}
	errTime      = refusal{401, "invalid_client", "AADSTS700024: Client assertion is not within its valid time range."}
	errSignature = refusal{401, "invalid_client", "AADSTS700027: The certificate with identifier used to sign the client assertion is not registered on application, or the signature is wrong."}
)

// serveIdentity returns false for paths that are not the authority's.
func (c *Cloud) serveIdentity(w http.ResponseWriter, r *http.Request) bool {
	tenant, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch path {
	case "v2.0/.well-known/openid-configuration":
		c.discovery(w, tenant)
	case "oauth2/v2.0/token":
		c.token(w, r, tenant)
	default:
		return false
	}
	return true
}

func (c *Cloud) discovery(w http.ResponseWriter, tenant string) {
	if tenant != TenantID {
		refuseToken(w, refusal{400, "invalid_tenant", "AADSTS90002: Tenant '" + tenant + "' not found."})
		return
	}
	base := c.Server.URL + "/" + tenant
	reply(w, http.StatusOK, map[string]any{
		"issuer": base + "/v2.0", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "token_endpoint": base + "/oauth2/v2.0/token",
	})
}

func refuseToken(w http.ResponseWriter, r refusal) {
	reply(w, r.status, map[string]any{"error": r.kind, "error_description": r.description + "\r\nTrace ID: sim"})
}

func (c *Cloud) token(w http.ResponseWriter, r *http.Request, tenant string) {
	if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || tenant != TenantID {
		refuseToken(w, errGrant)
		return
	}
	if refused := c.checkClient(r); refused != nil {
		refuseToken(w, *refused)
		return
	}
	life := c.options.TokenLife
	claims := encode(map[string]any{"aud": strings.TrimSuffix(scope, "/.default"), "exp": time.Now().Add(life).UnixMilli()})
	reply(w, http.StatusOK, map[string]any{
		"token_type": "Bearer", "expires_in": max(int(life.Seconds()), 1), "ext_expires_in": max(int(life.Seconds()), 1), "access_token": claims + "." + c.identity.sign(claims),
	})
}

func (i *identity) sign(text string) string {
	mac := hmac.New(sha256.New, i.secret)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (c *Cloud) checkClient(r *http.Request) *refusal {
	form := r.PostForm
	switch {
	case form.Get("grant_type") != "client_credentials":
		return &errGrant
	case !slices.Contains(strings.Fields(form.Get("scope")), scope):
		return &errScope
	case form.Get("client_id") != ClientID:
		return &errApp
	case form.Has("client_assertion"):
		if form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
			return &errGrant
		}
		return c.identity.checkAssertion(form.Get("client_assertion"))
	case form.Get("client_secret") != ClientSecret:
		return &errSecret
	case c.options.SecretExpired:
		return &errExpired
	}
	return nil
}

// checkAssertion verifies a federated token: signature (RFC 7515, RS256), then
// claims.
func (i *identity) checkAssertion(token string) *refusal {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return &errAssertion
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(&i.issuer.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		return &errSignature
	}
	var claims struct {
		Iss, Sub string
		Aud      []string
		Nbf, Exp int64
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(body, &claims) != nil {
		return &errAssertion
	}
	const skew = 300
	now := time.Now().Unix()
	switch {
	case claims.Iss != Issuer, claims.Sub != Subject, !slices.Contains(claims.Aud, Audience):
		return &errAssertion
	case now > claims.Exp+skew, now < claims.Nbf-skew:
		return &errTime
	}
	return nil
}

// authorized checks the token of a request.
func (c *Cloud) authorized(r *http.Request) *failure {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return &failure{http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing."}
	}
	claims, signature, _ := strings.Cut(bearer, ".")
	body, err := base64.RawURLEncoding.DecodeString(claims)
	var said struct {
		Aud string
		Exp int64
	}
	if err != nil || !hmac.Equal([]byte(signature), []byte(c.identity.sign(claims))) || json.Unmarshal(body, &said) != nil || said.Aud+"/.default" != scope {
		return &failure{http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid."}
	}
	if time.Now().UnixMilli() > said.Exp {
		return &failure{http.StatusUnauthorized, "ExpiredAuthenticationToken", fmt.Sprintf("The access token expiry UTC time '%d' is earlier than current UTC time.", said.Exp)}
	}
	return nil
}
