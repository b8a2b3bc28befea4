// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The identities that the token service knows.
const (
	APIKey    = "simulated-api-key"
	ProfileID = "iam-Profile-0123456789ab"
	// ClusterToken is what a cluster's pod shows for the profile.
	ClusterToken = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJpYW0ifQ.c2ln"
)

// iamError is in the form of the token service.
func iamError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, toJSON(map[string]any{"errorCode": code, "errorMessage": message}))
}

// serveToken is POST /identity/token (page "IAM Identity Services API").
func (s *Sim) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ParseForm() != nil {
		iamError(w, http.StatusBadRequest, "BXNIM0106E", "no form")
		return
	}
	switch grant := r.PostForm.Get("grant_type"); grant {
	case "urn:ibm:params:oauth:grant-type:apikey":
		if r.PostForm.Get("apikey") != APIKey {
			iamError(w, http.StatusBadRequest, "BXNIM0415E", "Provided API key could not be found.")
			return
		}
	case "urn:ibm:params:oauth:grant-type:cr-token":
		if r.PostForm.Get("cr_token") != ClusterToken || r.PostForm.Get("profile_id") != ProfileID {
			iamError(w, http.StatusBadRequest, "BXNIM0439E", "Selected trusted profile not eligible for CR token")
			return
		}
	default:
		iamError(w, http.StatusBadRequest, "BXNIM0108E", "Provided grant_type is not supported: "+grant)
		return
	}
	now := time.Now()
	token := s.jwt(now)
	s.mu.Lock()
	s.tokens[token] = now.Add(s.TokenLife)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, toJSON(map[string]any{
		"access_token": token, "refresh_token": "not_supported", "token_type": "Bearer",
		"expires_in": int(s.TokenLife.Seconds()), "expiration": now.Add(s.TokenLife).Unix(), "scope": "ibm openid",
	}))
}

// jwt is a token as the SDK looks into it: it reads iat and exp.
func (s *Sim) jwt(now time.Time) string {
	s.mu.Lock()
	serial := s.number()
	s.mu.Unlock()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		encode([]byte(toJSON(map[string]any{"iat": now.Unix(), "exp": now.Add(s.TokenLife).Unix(), "jti": serial})))
	mac := hmac.New(sha256.New, []byte("simulated"))
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// known reports whether a request shows a token that is good.
func (s *Sim) known(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && s.tokens[token].After(time.Now())
}
