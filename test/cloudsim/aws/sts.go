// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// claims are those of a service account's token.
type claims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`
	Expires  int64    `json:"exp"`
}

// Token returns a service account's token as the kubelet writes it.
func Token(key *ecdsa.PrivateKey, issuer, subject, audience string, expires time.Time) string {
	head := encode([]byte(`{"alg":"ES256","typ":"JWT"}`))
	body, err := json.Marshal(claims{issuer, subject, []string{audience}, expires.Unix()})
	if err != nil {
		panic(err)
	}
	text := head + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	return text + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// verify returns the claims of a token that the issuer has signed.
func (i *Issuer) verify(token string, now time.Time) (claims, *failure) {
	var c claims
	head, signature, ok := cutLast(token, ".")
	_, body, both := strings.Cut(head, ".")
	data, err := base64.RawURLEncoding.DecodeString(body)
	raw, rawErr := base64.RawURLEncoding.DecodeString(signature)
	if !ok || !both || err != nil || rawErr != nil || len(raw) != 64 || json.Unmarshal(data, &c) != nil {
		return c, fail("InvalidIdentityToken", "The ID Token provided is not a valid JWT.")
	}
	sum := sha256.Sum256([]byte(head))
	switch {
	case !ecdsa.Verify(i.Key, sum[:], new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])):
		return c, fail("InvalidIdentityToken", "Couldn't verify the signature of the token.")
	case c.Issuer != i.URL:
		return c, fail("InvalidIdentityToken", "No OpenIDConnect provider found in your account for %s", c.Issuer)
	case !slices.Contains(c.Audience, i.Audience):
		return c, fail("InvalidIdentityToken", "Incorrect token audience")
	case now.After(time.Unix(c.Expires, 0)):
		return c, fail("ExpiredTokenException", "Token expired")
	}
	return c, nil
}

func cutLast(text, sep string) (before, after string, ok bool) {
	at := strings.LastIndex(text, sep)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// assumeRole exchanges a token for keys that work for a while.
func (c *Cloud) assumeRole(r request) (obj, *failure) {
	issuer := c.options.Issuer
	if issuer == nil {
		return nil, fail("InvalidIdentityToken", "No OpenIDConnect provider found in your account")
	}
	who, f := issuer.verify(r.get("WebIdentityToken"), c.now())
	if f != nil {
		return nil, f
	}
	if r.get("RoleArn") != issuer.Role || who.Subject != issuer.Subject {
		return nil, fail("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	}
	c.serial++
	id := fmt.Sprintf("ASIAOUTRIGGER%07d", c.serial)
	made := session{secret: fmt.Sprintf("secret-of-%s", id), token: fmt.Sprintf("session-of-%s", id), expires: c.now().Add(time.Duration(r.number("DurationSeconds", 3600)) * time.Second)}
	c.sessions[id] = made
	return obj{
		"Credentials":                 obj{"AccessKeyId": id, "SecretAccessKey": made.secret, "SessionToken": made.token, "Expiration": made.expires},
		"SubjectFromWebIdentityToken": who.Subject, "Audience": issuer.Audience, "Provider": issuer.URL,
		"AssumedRoleUser": obj{"Arn": r.get("RoleArn") + "/" + r.get("RoleSessionName"), "AssumedRoleId": "AROATEST:" + r.get("RoleSessionName")},
	}, nil
}

// EndSessions makes all temporary keys expire.
func (c *Cloud) EndSessions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.sessions {
		s.expires = c.now().Add(-time.Minute)
		c.sessions[id] = s
	}
}
