// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// signed is what an Authorization header says (IAM user guide, "Create a signed
// AWS API request").
type signed struct {
	keyID, date, region, service string
	headers                      []string
	signature                    string
}

// unsignedPayload stands for the body's hash where TLS protects the body.
const unsignedPayload = "UNSIGNED-PAYLOAD"

const algorithm = "AWS4-HMAC-SHA256"

var errUnsigned = errors.New("the request is not signed")

func parseAuthorization(header string) (signed, error) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return signed{}, errUnsigned
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || fields["SignedHeaders"] == "" || fields["Signature"] == "" {
		return signed{}, fmt.Errorf("%w: %q", errUnsigned, header)
	}
	return signed{scope[0], scope[1], scope[2], scope[3], strings.Split(fields["SignedHeaders"], ";"), fields["Signature"]}, nil
}

// canonical is the request as it is signed.
func canonical(r *http.Request, body []byte, headers []string) string {
	var text strings.Builder
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	fmt.Fprintf(&text, "%s\n%s\n%s\n", r.Method, path, canonicalQuery(r.URL.Query()))
	for _, name := range headers {
		fmt.Fprintf(&text, "%s:%s\n", name, headerValue(r, name))
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	if r.Header.Get("X-Amz-Content-Sha256") == unsignedPayload && r.TLS != nil {
		hash = unsignedPayload
	}
	fmt.Fprintf(&text, "\n%s\n%s", strings.Join(headers, ";"), hash)
	return text.String()
}

func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return fmt.Sprint(r.ContentLength)
	}
	var values []string
	for _, value := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(value), " "))
	}
	return strings.Join(values, ",")
}

func canonicalQuery(query url.Values) string {
	var pairs []string
	for name, values := range query {
		for _, value := range values {
			pairs = append(pairs, escape(name)+"="+escape(value))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

func escape(text string) string {
	return strings.NewReplacer("+", "%20", "%7E", "~").Replace(url.QueryEscape(text))
}

// sign returns the signature of a request.
func (s signed) sign(secret, amzDate, canonicalRequest string) string {
	sum := sha256.Sum256([]byte(canonicalRequest))
	scope := strings.Join([]string{s.date, s.region, s.service, "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, amzDate, scope, hex.EncodeToString(sum[:])}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.date, s.region, s.service, "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// How far a client's clock may be off: a request must reach AWS within five
// minutes of its time stamp (IAM user guide); after fifteen EC2 calls it
// expired (EC2 API reference, "Error codes").
const (
	maxSkew    = 5 * time.Minute
	expiredFor = 15 * time.Minute
)

// verify returns why a request is not to be believed. secrets returns the
// secret of a key and the session token that must come with it.
func verify(r *http.Request, body []byte, service, region string, now time.Time, secrets func(keyID string) (secret, session string, f *failure)) (keyID string, f *failure) {
	s, err := parseAuthorization(r.Header.Get("Authorization"))
	if err != nil {
		return "", fail("AuthFailure", "AWS was not able to validate the provided access credentials: %v", err)
	}
	secret, session, f := secrets(s.keyID)
	if f != nil {
		return "", f
	}
	amzDate := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", amzDate)
	switch {
	case err != nil || !strings.HasPrefix(amzDate, s.date):
		return "", fail("AuthFailure", "the date %q is not that of the credential", amzDate)
	case s.service != service || s.region != region:
		return "", fail("AuthFailure", "Credential should be scoped to %s in %s, not to %s in %s", service, region, s.service, s.region)
	case !slices.Contains(s.headers, "host") || !slices.Contains(s.headers, "x-amz-date") || !slices.IsSorted(s.headers):
		return "", fail("AuthFailure", "the signed headers %v lack host or x-amz-date, or are not sorted", s.headers)
	case r.Header.Get("X-Amz-Security-Token") != session || session != "" && !slices.Contains(s.headers, "x-amz-security-token"):
		return "", fail("AuthFailure", "the session token is not that of the key")
	case s.sign(secret, amzDate, canonical(r, body, s.headers)) != s.signature:
		return "", fail("AuthFailure", "AWS was not able to validate the provided access credentials")
	case now.Sub(at).Abs() > maxSkew && now.Sub(at).Abs() < expiredFor:
		return "", fail("AuthFailure", "AWS was not able to validate the provided access credentials: the signature is of %s, and it is %s", at, now.UTC())
	case now.Sub(at).Abs() >= expiredFor:
		return "", fail("RequestExpired", "Request has expired: it is of %s, and it is %s", at, now.UTC())
	}
	return s.keyID, nil
}
