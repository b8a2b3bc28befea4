// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxForeign is how much of a service's text is passed on, in bytes.
	maxForeign = 2 << 10
	// maxRead is how much of it is looked at: somebody may send megabytes.
	maxRead = 64 << 10
)

// run is what no sentence has: a body that a service gives back, in base64. A
// digest in hexadecimal is shorter.
var run = regexp.MustCompile(`[A-Za-z0-9+/_=%-]{100,}`)

// Foreign is a text of a cloud, a plugin or a guest, for an error, a log line or an
// Event: on one line, without secrets, of at most 2 KiB. Clouds quote requests
// that they refuse, and with them the keys in user-data.
func Foreign(text string) string {
	return line(text, func(s string) string { return Text(run.ReplaceAllString(s, Hidden)) })
}

// Line is a text of a guest for an error or a log line: on one line, of at most 2 KiB.
// Nothing is hidden: the secrets there are those of the pod, whose users read it.
func Line(text string) string {
	return line(text, func(s string) string { return s })
}

func line(text string, hide func(string) string) string {
	whole := len(text)
	text = hide(strings.ToValidUTF8(text[:min(whole, maxRead)], "\uFFFD"))
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
	if len(text) <= maxForeign && whole <= maxRead {
		return text
	}
	end := min(maxForeign, len(text)-1)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:end], whole)
}

// Error gives an error a text that is [Foreign], in which mask, unless it is nil, has
// hidden what is known to be secret. What it wraps is found as before.
func Error(err error, mask func(string) string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if mask != nil {
		text = mask(text)
	}
	return &foreignError{Foreign(text), err}
}

type foreignError struct {
	text  string
	cause error
}

func (e *foreignError) Error() string { return e.text }
func (e *foreignError) Unwrap() error { return e.cause }
