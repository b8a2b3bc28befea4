// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The identities that the simulator knows.
const (
	Email  = "outrigger@test-project.iam.gserviceaccount.com"
	keyID  = "0123456789abcdef0123456789abcdef01234567"
	issuer = "https://cluster.example"
	// Subject is the Kubernetes service account of the external account.
	Subject  = "system:serviceaccount:confidential-containers-system:cloud-api-adaptor"
	audience = "//iam.googleapis.com/projects/123456789/locations/global/workloadIdentityPools/pool/providers/cluster"
)

// keys are made once: it takes a while.
var keys = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// ServiceAccount is the JSON of the service account's key.
func (s *Sim) ServiceAccount() string { return s.serviceAccount(keys()) }

// Stranger is the same with a key that the cloud does not know.
func (s *Sim) Stranger() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return s.serviceAccount(key)
}

func (s *Sim) serviceAccount(key *rsa.PrivateKey) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return toJSON(map[string]any{
		"type": "service_account", "project_id": Project, "private_key_id": keyID, "client_email": Email,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":   s.Server.URL + "/token",
	})
}

// ExternalAccount is the JSON of workload identity federation with the token
// in a file; impersonated is whether it becomes the service account.
func (s *Sim) ExternalAccount(tokenFile string, impersonated bool) string {
	account := map[string]any{
		"type": "external_account", "audience": audience, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url": s.Server.URL + "/v1/token", "credential_source": map[string]any{"file": tokenFile},
	}
	if impersonated {
		account["service_account_impersonation_url"] = s.Server.URL + "/v1/projects/-/serviceAccounts/" + Email + ":generateAccessToken"
	}
	return toJSON(account)
}

// ClusterToken is a service account token as Kubernetes projects it.
func ClusterToken(lifetime time.Duration) string {
	now := time.Now()
	return sign(map[string]any{"iss": issuer, "sub": Subject, "aud": []string{audience}, "iat": now.Unix(), "exp": now.Add(lifetime).Unix()})
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func sign(claims map[string]any) string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode([]byte(toJSON(claims)))
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, keys(), crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return signed + "." + encode(signature)
}

// verify checks a token's signature and returns its claims (RFC 7515, 7519).
func verify(token string) (map[string]any, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("no JWT")
	}
	var header struct{ Alg string }
	var claims map[string]any
	// Google takes padding too, which RFC 7515 does not know.
	decode := func(part string) ([]byte, error) {
		return base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "="))
	}
	head, err1 := decode(parts[0])
	body, err2 := decode(parts[1])
	signature, err3 := decode(parts[2])
	if err := errors.Join(err1, err2, err3, json.Unmarshal(head, &header), json.Unmarshal(body, &claims)); err != nil {
		return nil, err
	}
	if header.Alg != "RS256" {
		return nil, fmt.Errorf("algorithm %q", header.Alg)
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return claims, rsa.VerifyPKCS1v15(&keys().PublicKey, crypto.SHA256, sum[:], signature)
}

// checkTimes allows ten minutes at most between the clocks (page "Using OAuth
// 2.0 for server to server applications").
func (s *Sim) checkTimes(claims map[string]any) error {
	iat, _ := claims["iat"].(float64)
	exp, _ := claims["exp"].(float64)
	now := float64(s.now().Unix())
	const skew = 300
	if iat > now+skew || exp < now-skew || exp-iat > 3700 || exp <= iat {
		return errors.New("invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim")
	}
	return nil
}

// oauthError returns as RFC 6749, section 5.2 says.
func oauthError(w http.ResponseWriter, code, description string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, toJSON(map[string]string{"error": code, "error_description": description}))
}

// olderAudience is that of clients from before oauth2.googleapis.com, which
// Google still takes.
const olderAudience = "https://accounts.google.com/o/oauth2/token"

// serveToken is oauth2.googleapis.com/token (RFC 7523).
func (s *Sim) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		oauthError(w, "unsupported_grant_type", "Invalid grant_type: "+r.PostFormValue("grant_type"))
		return
	}
	claims, err := verify(r.PostFormValue("assertion"))
	if err != nil {
		oauthError(w, "invalid_grant", "Invalid JWT Signature.")
		return
	}
	aud := claims["aud"]
	if claims["iss"] != Email || aud != s.Server.URL+"/token" && aud != olderAudience || claims["scope"] == "" {
		oauthError(w, "invalid_grant", "Invalid JWT: iss, aud or scope")
		return
	}
	if err := s.checkTimes(claims); err != nil {
		oauthError(w, "invalid_grant", err.Error())
		return
	}
	s.answerToken(w, Email, nil)
}

// serveExchange is sts.googleapis.com/v1/token (RFC 8693).
func (s *Sim) serveExchange(w http.ResponseWriter, r *http.Request) {
	for name, want := range map[string]string{
		"grant_type":           "urn:ietf:params:oauth:grant-type:token-exchange",
		"audience":             audience,
		"requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"subject_token_type":   "urn:ietf:params:oauth:token-type:jwt",
	} {
		if got := r.PostFormValue(name); got != want {
			oauthError(w, "invalid_request", fmt.Sprintf("Invalid value for %q: %q", name, got))
			return
		}
	}
	claims, err := verify(r.PostFormValue("subject_token"))
	if err != nil {
		oauthError(w, "invalid_grant", "Error connecting to the given credential's issuer, or the signature is wrong.")
		return
	}
	aud, _ := claims["aud"].([]any)
	exp, _ := claims["exp"].(float64)
	switch {
	case len(aud) != 1 || aud[0] != audience:
		oauthError(w, "invalid_grant", "The audience in ID Token does not match the expected audience.")
	case claims["iss"] != issuer || claims["sub"] != Subject:
		oauthError(w, "invalid_grant", "The issuer or subject is not known.")
	case exp < float64(s.now().Unix()):
		oauthError(w, "invalid_grant", "ID Token issued has expired.")
	default:
		s.answerToken(w, "federated", map[string]any{"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"})
	}
}

// serveImpersonation is iamcredentials.googleapis.com, generateAccessToken.
func (s *Sim) serveImpersonation(w http.ResponseWriter, r *http.Request) {
	if principal, ok := s.principal(r); !ok || principal != "federated" {
		s.refuse(w, http.StatusUnauthorized, "authError", "Request had invalid authentication credentials.")
		return
	}
	if !strings.HasSuffix(r.URL.Path, "/"+Email+":generateAccessToken") {
		s.refuse(w, http.StatusForbidden, "forbidden", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
		return
	}
	fmt.Fprint(w, toJSON(map[string]any{"accessToken": s.grant(Email), "expireTime": s.now().Add(s.TokenLife).UTC().Format(time.RFC3339)}))
}

// Metadata is the part of a VM's metadata server that gives tokens (page
// "Authenticate workloads using service accounts").
func (s *Sim) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.World.Called("metadata.token")
		w.Header().Set("Metadata-Flavor", "Google")
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		case r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/token":
			s.answerToken(w, Email, nil)
		default:
			http.NotFound(w, r)
		}
	})
}

func (s *Sim) answerToken(w http.ResponseWriter, principal string, more map[string]any) {
	answer := map[string]any{"access_token": s.grant(principal), "token_type": "Bearer", "expires_in": int(s.TokenLife.Seconds())}
	for name, value := range more {
		answer[name] = value
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, toJSON(answer))
}

// bearer is a token that was handed out.
type bearer struct {
	principal string
	ends      time.Time
}

func (s *Sim) grant(principal string) string {
	text := make([]byte, 16)
	rand.Read(text)
	token := "ya29." + hex.EncodeToString(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = bearer{principal, s.now().Add(s.TokenLife)}
	return token
}

// Revoke makes all tokens of now worthless.
func (s *Sim) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// principal returns who asks.
func (s *Sim) principal(r *http.Request) (string, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.tokens[token]
	return found.principal, ok && known && found.ends.After(s.now())
}
