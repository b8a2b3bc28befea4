// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The older form of requests, which the cloud takes beside the newer: all is
// in the query, signed with HMAC-SHA1, and answers are XML unless Format says
// otherwise (page "RPC-style API: request syntax and signature method V2").
var rpcOwn = []string{
	"Action", "Version", "Format", "AccessKeyId", "SecurityToken",
	"Signature", "SignatureMethod", "SignatureVersion", "SignatureNonce", "Timestamp",
}

func isRPC(r *http.Request) bool { return r.URL.Query().Has("Signature") }

func (c *Cloud) handleRPC(r *http.Request) (map[string]any, error) {
	query := r.URL.Query()
	if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodPost {
		return nil, refuse("UnsupportedHTTPMethod", "%s %s", r.Method, r.URL.Path)
	}
	who, ok := c.accounts[query.Get("AccessKeyId")]
	switch {
	case !ok:
		return nil, refuse("InvalidAccessKeyId.NotFound", "Specified access key is not found.")
	case query.Get("SignatureMethod") != "HMAC-SHA1", query.Get("SignatureVersion") != "1.0":
		return nil, refuse("IncompleteSignature", "SignatureMethod is not HMAC-SHA1, or SignatureVersion not 1.0.")
	case !hmac.Equal([]byte(signRPC(r.Method, query, who.secret)), []byte(query.Get("Signature"))):
		return nil, refuse("SignatureDoesNotMatch", "Specified signature is not matched with our calculation.")
	}
	if err := c.timely(who, query.Get("Timestamp"), query.Get("SignatureNonce"), query.Get("SecurityToken")); err != nil {
		return nil, err
	}
	version, action := query.Get("Version"), query.Get("Action")
	for _, name := range rpcOwn {
		query.Del(name)
	}
	return c.allowed(version, action, actionOf(r), query)
}

func signRPC(method string, query url.Values, secret string) string {
	signed := maps.Clone(query)
	signed.Del("Signature")
	mac := hmac.New(sha1.New, []byte(secret+"&"))
	mac.Write([]byte(method + "&" + escape("/") + "&" + escape(canonicalQuery(signed))))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// answerXML writes an answer, or an error, as one of an action.
func answerXML(out http.ResponseWriter, status int, root string, body map[string]any) {
	out.Header().Set("Content-Type", "text/xml;charset=utf-8")
	out.WriteHeader(status)
	text, err := json.Marshal(body)
	var plain map[string]any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		panic(err) // maps of texts, numbers and lists
	}
	var document strings.Builder
	document.WriteString("<?xml version='1.0' encoding='UTF-8'?>")
	element(&document, root, plain)
	// The connection may be gone, which is the client's affair.
	_, _ = out.Write([]byte(document.String()))
}

// element writes a value as an element of its name, and a list as one for each.
func element(to *strings.Builder, name string, v any) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, one := range list {
		to.WriteString("<" + name + ">")
		if inner, ok := one.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(inner)) {
				element(to, key, inner[key])
			}
		} else if one != nil {
			text, ok := one.(string)
			if !ok {
				number, _ := json.Marshal(one) // a number or a bool
				text = string(number)
			}
			_ = xml.EscapeText(to, []byte(text)) // a Builder takes all
		}
		to.WriteString("</" + name + ">")
	}
}
