// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/redact"
)

// masked is what is written in place of a secret.
const masked = "***"

// plainHeaders are written as they are, except for what masks find in them.
var plainHeaders = []string{
	"Content-Type", "Content-Length", "Date", "Location", "Retry-After", "Link", "Allow",
	"Openstack-Api-Version", "X-Openstack-Nova-Api-Version", "X-Openstack-Request-Id", "X-Compute-Request-Id",
	"X-Ms-Request-Id", "X-Ms-Error-Code", "X-Amzn-Requestid", "X-Amz-Target", "X-Acs-Action", "X-Acs-Version", "X-Acs-Request-Id", "Server",
}

// headers returns the first value of each header. What is not known to be plain
// is masked.
func headers(from http.Header) map[string]string {
	out := map[string]string{}
	for name := range from {
		out[name] = masked
		if slices.Contains(plainHeaders, name) {
			out[name] = from.Get(name)
		}
	}
	return out
}

// secretName are members whose values are secrets, or hold some: user-data has
// the key of a pod VM.
var secretName = regexp.MustCompile(`(?i)pass|secret|token|credential|assertion|api.?key|private|signature|user.?data|custom.?data|admin_?pass|ssh|^key$|authorization|client_id`)

// masker takes out the secrets that are known, then what looks like one.
func masker(secrets []string) func(string) string {
	known := redact.Known(secrets...)
	return func(text string) string { return redact.Text(known(text)) }
}

// maskBody masks JSON and forms member by member, and other texts whole.
func maskBody(text string, mask func(string) string) string {
	var value any
	if json.Unmarshal([]byte(text), &value) == nil {
		out, err := json.Marshal(maskValue("", value, mask))
		if err != nil {
			return masked
		}
		return string(out)
	}
	if form, err := url.ParseQuery(text); err == nil && strings.Contains(text, "=") && !strings.ContainsAny(text, "<{ \n") && len(form) > 0 {
		return maskQuery(text, mask)
	}
	return maskXML(mask(text))
}

var xmlMember = regexp.MustCompile(`<([A-Za-z0-9:_-]+)>([^<]+)</`)

func maskXML(text string) string {
	return xmlMember.ReplaceAllStringFunc(text, func(member string) string {
		parts := xmlMember.FindStringSubmatch(member)
		if !secretName.MatchString(parts[1]) {
			return member
		}
		return "<" + parts[1] + ">" + masked + "</"
	})
}

func maskQuery(text string, mask func(string) string) string {
	form, err := url.ParseQuery(text)
	if err != nil {
		return masked
	}
	for name, values := range form {
		for i := range values {
			values[i] = mask(values[i])
			if secretName.MatchString(name) {
				values[i] = masked
			}
		}
	}
	return form.Encode()
}

// maskPair masks a member whose name is the value of another, as in
// {"key": "user-data", "value": "..."}.
func maskPair(pair map[string]any) {
	for _, names := range [][2]string{{"key", "value"}, {"name", "value"}, {"Key", "Value"}, {"Name", "Value"}} {
		name, _ := pair[names[0]].(string)
		if _, ok := pair[names[1]].(string); ok && secretName.MatchString(name) {
			pair[names[1]] = masked
		}
	}
}

func maskValue(name string, value any, mask func(string) string) any {
	switch v := value.(type) {
	case string:
		if v != "" && secretName.MatchString(name) {
			return masked
		}
		return mask(v)
	case []any:
		for i := range v {
			v[i] = maskValue(name, v[i], mask)
		}
	case map[string]any:
		maskPair(v)
		for inner := range v {
			v[inner] = maskValue(inner, v[inner], mask)
		}
	}
	return value
}
