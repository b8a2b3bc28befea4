// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// issuerKey is that of the identity provider.
var issuerKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return key
})

// Claims are those of a service account's token.
type Claims struct {
	Issuer   string   `json:"iss"`
	Audience []string `json:"aud"`
	Subject  string   `json:"sub"`
	Expire   int64    `json:"exp"`
	Issued   int64    `json:"iat"`
}

// ServiceAccount returns the claims of the adaptor's token.
func ServiceAccount() Claims {
	now := time.Now()
	return Claims{Issuer, []string{Audience}, Subject, now.Add(time.Hour).Unix(), now.Add(-time.Minute).Unix()}
}

// Token returns a token as a cluster signs it (RS256).
func Token(claims Claims) string {
	head := encode([]byte(`{"alg":"RS256","kid":"cluster","typ":"JWT"}`))
	body, err := json.Marshal(claims)
	if err != nil {
		panic(err) // texts and numbers only
	}
	text := head + "." + encode(body)
	hash := sha256.Sum256([]byte(text))
	value, err := rsa.SignPKCS1v15(nil, issuerKey(), crypto.SHA256, hash[:])
	if err != nil {
		panic(err) // the key is right
	}
	return text + "." + encode(value)
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// verify returns the claims of a token whose signature is right.
func verify(token string) (Claims, error) {
	var claims Claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims, fmt.Errorf("it has %d parts", len(parts))
	}
	var decoded [3][]byte
	for n, part := range parts {
		data, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || strings.ContainsAny(part, "\r\n") {
			return claims, fmt.Errorf("part %d is not base64url", n+1)
		}
		decoded[n] = data
	}
	var head struct{ Alg string }
	if err := json.Unmarshal(decoded[0], &head); err != nil || head.Alg != "RS256" {
		return claims, fmt.Errorf("its algorithm is %q", head.Alg)
	}
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&issuerKey().PublicKey, crypto.SHA256, hash[:], decoded[2]); err != nil {
		return claims, err
	}
	return claims, json.Unmarshal(decoded[1], &claims)
}

// stsQuery and stsForm are the parameters of AssumeRoleWithOIDC, and whether
// they are required.
var (
	stsQuery = map[string]bool{"Action": true, "Version": true, "Format": false, "Timestamp": true, "SignatureNonce": false}
	stsForm  = map[string]bool{"RoleArn": true, "OIDCProviderArn": true, "OIDCToken": true, "RoleSessionName": true, "DurationSeconds": false, "Policy": false}
)

var sessionName = regexp.MustCompile(`^[\w.@-]{2,64}$`)

// assumeRole is not signed: the token says who asks.
func (c *Cloud) assumeRole(r *http.Request) (map[string]any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, refuse("InvalidParameter", "The form does not parse.")
	}
	query, form := r.URL.Query(), r.PostForm
	if err := only(query, stsQuery); err != nil {
		return nil, err
	}
	if query.Get("Action") != "AssumeRoleWithOIDC" || query.Get("Version") != stsVersion {
		return nil, refuse("InvalidVersion", "There is no such action and version.")
	}
	if err := only(form, stsForm); err != nil {
		return nil, err
	}
	at, err := time.Parse("2006-01-02T15:04:05Z", query.Get("Timestamp"))
	if err != nil {
		return nil, refuse("InvalidTimeStamp.Format", "Timestamp is not a time.")
	}
	if skew := c.now().Sub(at); skew > maxSkew || skew < -maxSkew {
		return nil, refuse("InvalidTimeStamp.Expired", "The time of the request is %v off.", skew.Round(time.Second))
	}
	duration, err := sessionOf(form)
	if err != nil {
		return nil, err
	}
	if err := c.trusts(form); err != nil {
		return nil, err
	}
	return c.session(min(duration, c.options.Session)), nil
}

func only(values url.Values, known map[string]bool) error {
	for name := range values {
		if _, ok := known[name]; !ok {
			return refuse("InvalidParameter", "The parameter %s is not defined.", name)
		}
	}
	for name, required := range known {
		if required && values.Get(name) == "" {
			return refuse("MissingParameter", "The parameter %s is required.", name)
		}
	}
	return nil
}

func sessionOf(form url.Values) (time.Duration, error) {
	if !sessionName.MatchString(form.Get("RoleSessionName")) {
		return 0, refuse("InvalidParameter.RoleSessionName", "The session name is not valid.")
	}
	text := form.Get("DurationSeconds")
	if text == "" {
		return time.Hour, nil
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 900 || seconds > 3600 {
		return 0, refuse("InvalidParameter.DurationSeconds", "DurationSeconds is from 900 to 3600.")
	}
	return time.Duration(seconds) * time.Second, nil
}

// trusts holds a token against the trust policy of the role.
func (c *Cloud) trusts(form url.Values) error {
	if form.Get("OIDCProviderArn") != OIDCProvider {
		return refuse("InvalidParameter.OIDCProviderArn", "There is no such identity provider.")
	}
	if form.Get("RoleArn") != Role {
		return refuse("EntityNotExist.Role", "The role does not exist.")
	}
	claims, err := verify(form.Get("OIDCToken"))
	switch {
	case err != nil:
		return refuse("AuthenticationFail.OIDCToken.Invalid", "The token is not valid: %v.", err)
	case c.now().Unix() > claims.Expire:
		return refuse("AuthenticationFail.OIDCToken.Expired", "The token has expired.")
	case claims.Issuer != Issuer, !slices.Equal(claims.Audience, []string{Audience}), claims.Subject != Subject && claims.Subject != OtherSubject:
		return refuse("AuthenticationFail.NoPermission", "The trust policy does not allow issuer %s, audience %v, subject %s.", claims.Issuer, claims.Audience, claims.Subject)
	}
	return nil
}

func (c *Cloud) session(duration time.Duration) map[string]any {
	who := &account{secret: newID("secret-"), token: newID("token-"), expire: c.now().Add(duration)}
	id := newID("STS.")
	c.accounts[id] = who
	return object{
		"Credentials": object{
			"AccessKeyId": id, "AccessKeySecret": who.secret, "SecurityToken": who.token, "Expiration": who.expire.Format("2006-01-02T15:04:05Z"),
		},
		"AssumedRoleUser": object{"Arn": Role + "/session", "AssumedRoleId": "300000000000000000:session"},
	}
}

// Revoke ends all sessions of roles.
func (c *Cloud) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, who := range c.accounts {
		if who.token != "" {
			who.expire = c.now().Add(-time.Second)
		}
	}
}
