// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const algorithm = "ACS3-HMAC-SHA256"

// signature is what a request's header Authorization says.
type signature struct {
	keyID  string
	signed []string
	value  string
}

func parseAuthorization(header string) (signature, bool) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return signature{}, false
	}
	var s signature
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			s.keyID = value
		case "SignedHeaders":
			s.signed = strings.Split(value, ";")
		case "Signature":
			s.value = value
		}
	}
	return s, s.keyID != "" && s.value != "" && len(s.signed) > 0
}

// sign computes the signature of a request over the headers named.
func sign(r *http.Request, body []byte, signed []string, secret string) string {
	request := canonical(r, body, signed)
	hash := sha256.Sum256([]byte(request))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(algorithm + "\n" + hex.EncodeToString(hash[:])))
	return hex.EncodeToString(mac.Sum(nil))
}

// canonical is the request as it is signed.
func canonical(r *http.Request, body []byte, signed []string) string {
	var headers strings.Builder
	for _, name := range signed {
		headers.WriteString(name + ":" + header(r, name) + "\n")
	}
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	hash := sha256.Sum256(body)
	return strings.Join([]string{r.Method, path, canonicalQuery(r.URL.Query()), headers.String(), strings.Join(signed, ";"), hex.EncodeToString(hash[:])}, "\n")
}

func header(r *http.Request, name string) string {
	if name == "host" {
		return r.Host
	}
	return strings.TrimSpace(r.Header.Get(name))
}

func canonicalQuery(query url.Values) string {
	var parts []string
	for name, values := range query {
		for _, value := range values {
			parts = append(parts, escape(name)+"="+escape(value))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// escape is RFC 3986's.
func escape(text string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(url.QueryEscape(text))
}

// mustBeSigned reports whether a header has to be among those that are signed.
func mustBeSigned(name string) bool {
	name = strings.ToLower(name)
	return name == "host" || name == "content-type" || strings.HasPrefix(name, "x-acs-")
}

// maxSkew is how far a request's time may be off.
const maxSkew = 15 * time.Minute

// authenticate returns the keys that signed a request.
func (c *Cloud) authenticate(r *http.Request, body []byte) (*account, error) {
	s, ok := parseAuthorization(r.Header.Get("Authorization"))
	if !ok {
		return nil, refuse("IncompleteSignature", "The request has no Authorization of %s.", algorithm)
	}
	who, ok := c.accounts[s.keyID]
	if !ok {
		return nil, refuse("InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	}
	if !slices.IsSorted(s.signed) {
		return nil, refuse("IncompleteSignature", "SignedHeaders is not sorted.")
	}
	for name := range r.Header {
		if mustBeSigned(name) && !slices.Contains(s.signed, strings.ToLower(name)) {
			return nil, refuse("IncompleteSignature", "Header %s is not signed.", name)
		}
	}
	for _, name := range []string{"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"} {
		if !slices.Contains(s.signed, name) || header(r, name) == "" {
			return nil, refuse("IncompleteSignature", "Header %s is missing or not signed.", name)
		}
	}
	if hash := sha256.Sum256(body); header(r, "x-acs-content-sha256") != hex.EncodeToString(hash[:]) {
		return nil, refuse("SignatureDoesNotMatch", "x-acs-content-sha256 is not that of the body.")
	}
	if !hmac.Equal([]byte(sign(r, body, s.signed, who.secret)), []byte(s.value)) {
		return nil, refuse("SignatureDoesNotMatch", "Specified signature is not matched with our calculation.")
	}
	return who, c.timely(who, header(r, "x-acs-date"), header(r, "x-acs-signature-nonce"), header(r, "x-acs-security-token"))
}

// timely checks what a valid signature may be too old for.
func (c *Cloud) timely(who *account, date, nonce, token string) error {
	now := c.now()
	at, err := time.Parse("2006-01-02T15:04:05Z", date)
	if err != nil {
		return refuse("InvalidTimeStamp.Format", "%q is not a time.", date)
	}
	if skew := now.Sub(at); skew > maxSkew || skew < -maxSkew {
		return refuse("InvalidTimeStamp.Expired", "The time of the request is %v off.", skew.Round(time.Second))
	}
	if nonce == "" || c.nonces[nonce] {
		return refuse("SignatureNonceUsed", "The nonce was used before.")
	}
	c.nonces[nonce] = true
	switch {
	case who.token == "" && token != "", who.token != "" && token != who.token:
		return refuse("InvalidSecurityToken.Malformed", "The security token is not that of the access key.")
	case !who.expire.IsZero() && now.After(who.expire):
		return refuse("InvalidSecurityToken.Expired", "The security token has expired.")
	}
	return nil
}
