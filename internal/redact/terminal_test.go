// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"strings"
	"testing"
)

// terminals are what a guest writes and what a terminal is shown of it.
var terminals = map[string]string{
	"[0.0] Linux\r\ntab\there\n":             "[0.0] Linux\ntab\there\n",
	"10%\r20%\r\r\n":                         "10%\n20%\n",
	"\x1b[31mred\x1b[0m":                     "red",
	"\x1b]0;title\x07after":                  "after",
	"\x1b]52;c;cm0gLXJm\x1b\\after":          "after",
	"\x1bP$q\"p\x1b\\\x1b[6nafter":           "after",
	"\u009b2J\u009d0;title\u009cafter":       "after",
	"\x1b(0lines\x1bc":                       "lines",
	"never ended \x1b]0;x\nthe next line":    "never ended \nthe next line",
	"never ended \x1b[1;\nthe next line":     "never ended \nthe next line",
	"back\b\b\x7f\x00 bell\a \u202eturned":   "back bell turned",
	"bad \xff\xfe, ä and 漢":                  "bad \uFFFD\uFFFD, ä and 漢",
	"a letter that is cut \xe6\xbc":          "a letter that is cut \uFFFD",
	"\x1b[38;2;1;2;3mcolour\x1b[K\x1b[2;5Hx": "colourx",
}

// A VM's console is the guest's to write: shown raw it types into the user's shell.
func TestTerminal(t *testing.T) {
	for text, want := range terminals {
		if got := string(Terminal([]byte(text))); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestConsole: sequences and letters that are cut anywhere are still those.
func TestConsole(t *testing.T) {
	for text, want := range terminals {
		for size := 1; size < len(text); size++ {
			var out bytes.Buffer
			w := Console(&out)
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			if got := out.String(); got != want && got+"\uFFFD" != want {
				t.Errorf("%q by %d bytes is shown as %q, want %q", text, size, got, want)
			}
		}
	}
}

func TestLine(t *testing.T) {
	path := "/run/kata-containers/shared/containers/" + strings.Repeat("0a", 32) + "-0123456789abcdef-resolv.conf"
	for text, want := range map[string]string{
		"no file " + path: "no file " + path,
		"two\nlines\x1b[2J \"/etc/passwd\": denied": "two lines [2J \"/etc/passwd\": denied",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	for _, shown := range []func(string) string{Line, Foreign} {
		if got := shown(strings.Repeat("password: a b\n", 300000)); len(got) > maxForeign+40 || !strings.HasSuffix(got, "… (4200000 bytes)") {
			t.Errorf("%d bytes, ends with %q", len(got), got[len(got)-30:])
		}
	}
}
