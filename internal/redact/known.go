// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// leastKnown is the length of the shortest secret that is looked for, in bytes:
// shorter ones are parts of ordinary words.
const leastKnown = 6

// Known returns a function that takes these secrets out of texts, in whatever form
// a service echoes them: as they are, quoted, in an address, in hexadecimal, in
// base64 alone or within something longer.
func Known(secrets ...string) func(string) string {
	var pairs []string
	for _, secret := range secrets {
		if len(secret) < leastKnown {
			continue
		}
		for _, form := range forms(secret) {
			pairs = append(pairs, form, Hidden)
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

func forms(secret string) []string {
	quoted, _ := json.Marshal(secret)
	digits := hex.EncodeToString([]byte(secret))
	all := []string{
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
		secret, strings.Trim(string(quoted), `"`), url.QueryEscape(secret), url.PathEscape(secret), digits, strings.ToUpper(digits),
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
