// SPDX-License-Identifier: Apache-2.0

// Package redact takes secrets out of texts that others will see. What is a secret
// is told by its looks: by the name in front of it, and by the shapes that keys and
// tokens have.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden is what is shown in the place of a secret.
const Hidden = "[hidden]"

// BootstrapToken is one of kubeadm's: who has it joins the cluster.
var BootstrapToken = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)

var (
	// privateKey, value and flag are where configurations have secrets.
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END`)
	value      = regexp.MustCompile(`(?i)(?:passw(?:or)?d|passphrase|token|key-data)["']?[ \t]*[:=][ \t]*["']?([^\s"',]{6,})|secret["']?[ \t]*[:=][ \t]*["']?([A-Za-z0-9+/=_-]{20,})`)
	flag       = regexp.MustCompile(`(?i)--[a-z-]*(?:passw(?:or)?d|passphrase|token|secret)[ \t]+["']?([^\s"',-][^\s"',]{5,})`)

	// pem is a private key that a message may have only the beginning of, pemEnd one
	// of which it has only the end; lines may have something in front.
	pem    = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)
	pemEnd = regexp.MustCompile(`(?s)(?:[A-Za-z0-9+/]{16,}={0,2}.{1,40}?)+?[A-Za-z0-9+/]*={0,2}.{0,40}?-----END [A-Z ]*PRIVATE KEY-----`)
	// der is a key, or a certificate, in base64: a SEQUENCE of more than 127 bytes.
	// armoured is base64 of PEM, as in a kubeconfig.
	der      = regexp.MustCompile(`\bMII[A-Za-z0-9+/]{40,}={0,2}`)
	armoured = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/_-]{16,}={0,2}`)
	// shaped are tokens that say by their beginning whose they are: GitHub's, GitLab's,
	// Slack's, Google's.
	shaped = regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|AIza)[A-Za-z0-9_-]{16,}`)
	// signed are the parts of an address that give access: Amazon's, Google's, Azure's.
	signed = regexp.MustCompile(`(?i)([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s"']+`)
	// auth is what docker's config.json calls user and password in base64.
	auth = regexp.MustCompile(`("(?:auth|identitytoken|registrytoken)\\*"\s*:\s*\\*")[^"\\]{4,}`)
	// listed is a flag whose value is the next element of a list, and pair something
	// whose name and value are fields of an object.
	listed = regexp.MustCompile(`(?i)(["']--?[a-z-]*(?:passw(?:or)?d|passphrase|token|secret)\\*["']\s*,\s*\\*["'])[^"'\\]+`)
	pair   = regexp.MustCompile(`(?i)("name\\*"\s*:\s*\\*"[^"\\]*(?:passw(?:or)?d|passphrase|token|secret|credential|key)[^"\\]*\\*"\s*,\s*\\*"value\\*"\s*:\s*\\*")[^"\\]+`)
	// userinfo is what stands before the host of an address.
	userinfo = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^\s/?#"']*@`)
	// bearer is what an HTTP request authorizes itself with.
	bearer = regexp.MustCompile(`(?i)(\bauthorization["']?[:=]?\s*["']?(?:bearer|basic)\s+|\bbearer\s+)[A-Za-z0-9._~+/=-]{12,}`)
	// webToken is a JSON web token: its first part is an object.
	webToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+`)
	// named is something that has the name of a secret: the name, what is between,
	// and the value. Quotes may be escaped, in what was quoted again, and the last one
	// may be missing in a message that was cut.
	named  = regexp.MustCompile(`(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|credential|key)[a-z0-9_-]*(?:\\*["'])?)(\s*[:=]\s*)(\\+"[^"]*(?:"|$)|"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|[^\s,;&"'{}\[\]]+)`)
	always = regexp.MustCompile(`(?i)passw(?:or)?d|passphrase`)
	digit  = regexp.MustCompile(`[0-9]`)
)

// leastLine is how long a line of a private key must be to be looked for: the
// last one may have a few letters, which are everywhere.
const leastLine = 16

// Find returns the secrets that a configuration has written down, so that they can
// be looked for wherever they come out.
func Find(text string) (all []string) {
	for _, key := range privateKey.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(key[1]) {
			if line = strings.TrimSpace(line); len(line) >= leastLine {
				all = append(all, line)
			}
		}
	}
	for _, v := range value.FindAllStringSubmatch(text, -1) {
		all = append(all, v[1]+v[2])
	}
	for _, v := range flag.FindAllStringSubmatch(text, -1) {
		all = append(all, v[1])
	}
	return all
}

// Text is a message without what looks like a secret. A word too much is hidden
// rather than one too few, as long as the message still says what is wrong.
func Text(message string) string {
	for _, whole := range []*regexp.Regexp{pem, pemEnd, armoured, der, shaped} {
		message = whole.ReplaceAllString(message, Hidden)
	}
	for _, rest := range []*regexp.Regexp{signed, auth, listed, pair} {
		message = rest.ReplaceAllString(message, "${1}"+Hidden)
	}
	message = userinfo.ReplaceAllString(message, "${1}"+Hidden+"@")
	message = bearer.ReplaceAllString(message, "${1}"+Hidden)
	message = webToken.ReplaceAllString(message, Hidden)
	message = flag.ReplaceAllStringFunc(message, func(found string) string {
		return strings.TrimSuffix(found, flag.FindStringSubmatch(found)[1]) + Hidden
	})
	message = named.ReplaceAllStringFunc(message, func(found string) string {
		part := named.FindStringSubmatch(found)
		if !secret(part[1], part[2], part[3]) {
			return found
		}
		// Of a sentence: "with password=x: refused".
		return part[1] + part[2] + Hidden + part[3][len(strings.TrimRight(part[3], ":.")):]
	})
	return BootstrapToken.ReplaceAllString(message, Hidden)
}

// secret tells a value from the rest of a sentence ("token: has expired") and from
// names of objects ("key=kube-system/x").
func secret(name, between, v string) bool {
	bare, quoted := strings.Trim(v, `"'\`), strings.ContainsAny(v[:1], `"'\`)
	name = strings.ToLower(strings.Trim(name, `"'\`))
	switch {
	case bare == "" || strings.HasPrefix(v, Hidden):
		return false
	case name == "key" || strings.HasSuffix(name, "name") || strings.HasSuffix(name, "names"):
		return len(bare) >= 20 && digit.MatchString(bare)
	case always.MatchString(name), strings.TrimSpace(between) == "=", quoted:
		return true
	}
	return len(bare) >= 6 && digit.MatchString(bare) || len(bare) >= 20
}

// leastKnown is the length of the shortest secret that is looked for, in bytes:
// shorter ones are parts of ordinary words.
const leastKnown = 6

// Known returns a function that takes these secrets out of texts, in whatever form
// a service echoes them: as they are, quoted, in an address, in hexadecimal, in
// base64 alone or within something longer.
func Known(secrets ...string) func(string) string {
	known := slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return len(secret) < leastKnown })
	return Replacer(known, Hidden).Replace
}

// Replacer puts a text in the place of secrets, of whatever length, in the forms that
// [Known] is about.
func Replacer(secrets []string, by string) *strings.Replacer {
	var all, pairs []string
	for _, secret := range secrets {
		all = append(all, forms(secret)...)
	}
	// Longest first: a secret may be the beginning of another.
	slices.SortFunc(all, func(x, y string) int { return len(y) - len(x) })
	for _, form := range all {
		pairs = append(pairs, form, by)
	}
	return strings.NewReplacer(pairs...)
}

// quoted returns a text as JSON has it between quotes, with the escapes for HTML that
// Go's encoder adds and others do not, or without.
func quoted(text string, html bool) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(html)
	enc.Encode(text) // a string always has a form
	return out.String()[1 : out.Len()-len("\"\n")]
}

func forms(secret string) []string {
	digits := hex.EncodeToString([]byte(secret))
	all := []string{
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
		secret, quoted(secret, true), quoted(secret, false), url.QueryEscape(secret), url.PathEscape(secret), digits, strings.ToUpper(digits),
	}
	for offset := range 3 {
		padded := append(make([]byte, offset), secret...)
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString(padded)
			// The letters at the ends are made of neighbours too.
			begin, end := (offset*8+5)/6, len(padded)*8/6
			if end-begin >= leastKnown {
				all = append(all, text[begin:end])
			}
		}
	}
	return all
}
