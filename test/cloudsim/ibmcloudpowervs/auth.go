// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// apiKeyGrant is the grant type of the IAM Identity Services API.
const apiKeyGrant = "urn:ibm:params:oauth:grant-type:apikey"

// token is POST /identity/token.
func (s *Sim) token(out http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost || r.ParseForm() != nil || r.PostForm.Get("grant_type") != apiKeyGrant:
		writeJSON(out, http.StatusBadRequest, map[string]string{"errorCode": "BXNIM0106E", "errorMessage": "Property missing or empty"})
	case r.PostForm.Get("apikey") != APIKey:
		writeJSON(out, http.StatusBadRequest, map[string]string{"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."})
	default:
		until := time.Now().Add(s.TokenLife)
		text := newToken(until)
		s.tokens[text] = until
		writeJSON(out, http.StatusOK, map[string]any{
			"access_token": text, "token_type": "Bearer", "expires_in": int(s.TokenLife / time.Second), "expiration": until.Unix(),
		})
	}
}

// newToken is a JWT, signed so that it is a whole one: nobody but the cloud
// itself checks it.
func newToken(until time.Time) string {
	part := func(v any) string {
		text, _ := json.Marshal(v) // maps of texts and numbers
		return base64.RawURLEncoding.EncodeToString(text)
	}
	head := part(map[string]string{"alg": "HS256", "typ": "JWT"}) + "." + part(map[string]any{
		"jti": rand.Text(), "iat": time.Now().Unix(), "exp": until.Unix(), "account": map[string]any{"valid": true, "bss": Account},
	})
	mac := hmac.New(sha256.New, []byte("the cloud's secret"))
	mac.Write([]byte(head))
	return head + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// authorized looks at token, CRN and rights.
func (s *Sim) authorized(out http.ResponseWriter, r *http.Request) bool {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	until, known := s.tokens[text]
	crn := fmt.Sprintf("crn:v1:bluemix:public:power-iaas:%s:a/%s:%s::", Zone, Account, Instance)
	switch {
	case !ok || !known || time.Now().After(until):
		refuse(out, http.StatusUnauthorized, "the token is not valid or has expired")
	case r.Header.Get("CRN") != crn:
		refuse(out, http.StatusForbidden, "the CRN %q is none of this account", r.Header.Get("CRN"))
	case s.denied[action(r)]:
		refuse(out, http.StatusForbidden, "not authorized: %s", action(r))
	default:
		return true
	}
	return false
}

// ForgetTokens makes all tokens invalid.
func (s *Sim) ForgetTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}
