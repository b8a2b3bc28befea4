// SPDX-License-Identifier: Apache-2.0

package ini

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	for text, want := range map[string]string{
		`k = plain`:                   "plain",
		`k=plain`:                     "plain",
		`k =`:                         "",
		`k = ""`:                      "",
		`k`:                           "true",
		`k ; bare`:                    "true",
		`k = a b  `:                   "a b",
		`k = a ; comment`:             "a",
		`k = a# comment`:              "a",
		`k = "a ; b # c"`:             "a ; b # c",
		`k = " a "`:                   " a ",
		`k = a" b "c`:                 "a b c",
		`k = "a\"b\\c\nd\te"`:         "a\"b\\c\nd\te",
		`k = a"\\"b`:                  `a\b`,
		"k = a \\\n  b":               "a   b",
		"k = a\\\r\nb":                "ab",
		"k = a\r":                     "a",
		`k = 'single'`:                "'single'",
		`k = a=b`:                     "a=b",
		`K = "https://h/?a=1;b=2#c" `: "https://h/?a=1;b=2#c",
		"k = one\nk = two":            "two",
		"k = ünï":                     "ünï",
	} {
		f, err := Parse("[S]\n" + text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, ok := f.Section("s", "").Get("k"); !ok || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestErrorsNameLineAndKey(t *testing.T) {
	for text, want := range map[string]string{
		"k = v":                        "line 1: expected section header",
		"\n# c\n!":                     "line 3: expected section header",
		"[S]\n!x":                      "line 2: expected section header or key, in section [S]",
		"[S]\n1 = 2":                   "line 2: expected section header or key, in section [S]",
		"[S":                           "line 1: [S: expected right bracket",
		"[S] x":                        "line 1: [S]: expected end of line after the right bracket",
		"[]":                           "line 1: expected section name after [",
		`[S ""]`:                       "line 1: [S]: empty subsection name",
		`[S "a]`:                       "line 1: subsection name is not terminated by a quote",
		`[S "a\n"]`:                    "line 1: [S: unknown escape sequence in the subsection's name",
		"[S]\n\nkey: value":            "line 3: [S] key: expected '='",
		"[S]\nkey = \"value":           "line 2: [S] key: string is not terminated by a quote",
		"[S]\nkey = \"value\nk = v":    "line 2: [S] key: string is not terminated by a quote",
		"[S \"a\"]\nkey = d\\omain":    `line 2: [S "a"] key: unknown escape sequence; put the value in quotes and write a backslash as \\`,
		"[S]\nkey = a\\\\b":            `line 2: [S] key: unknown escape sequence; put the value in quotes and write a backslash as \\`,
		"[S]\nkey = a\\\n\\x":          `line 3: [S] key: unknown escape sequence; put the value in quotes and write a backslash as \\`,
		"[S]\nkey = v\nother = \xff":   "line 3: not UTF-8 text",
		"[S]\nkey = v\x00":             "line 2: not UTF-8 text",
		"[S]\nkey = \\":                `line 2: [S] key: unknown escape sequence; put the value in quotes and write a backslash as \\`,
		"global:\n  user: x\nother: y": "line 1: expected section header",
	} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	text := "\ufeff; head\n[Global]\nNodeIPFamilies = ipv6\nempty =\nbare\nNodeIPFamilies = ipv4\n" +
		"pw = \" a;b#c\\\"\\\\\\n\\t\"\n[Override \"a\\\"b\"]\nu = x\n[global]\nmore = 1\n"
	want := "[Global]\nNodeIPFamilies = ipv6\nempty =\nbare\nNodeIPFamilies = ipv4\n" +
		"pw = \" a;b#c\\\"\\\\\\n\\t\"\nmore = 1\n\n[Override \"a\\\"b\"]\nu = x\n"
	f, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, f.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	again, err := Parse(f.String())
	if err != nil || again.String() != want {
		t.Errorf("read again: %v\n%s", err, again)
	}
}

func TestChange(t *testing.T) {
	f, err := Parse("[A]\nk = 1\nother = x\nK = 2\n[B]\nx = y")
	if err != nil {
		t.Fatal(err)
	}
	a := f.Add("a")
	a.Set("k", "3")
	a.Default("k", "4")
	a.Default("new", "5")
	a.Delete("OTHER")
	f.Remove("b")
	f.Add("C").Set("q", "")
	if d := cmp.Diff("[A]\nk = 3\nnew = 5\n\n[C]\nq =\n", f.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("[S \"x\"]\nk = \"a\\\"\" b ; c\nbare\n")
	f.Fuzz(func(t *testing.T, text string) {
		first, err := Parse(text)
		if err != nil {
			return
		}
		second, err := Parse(first.String())
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, first, err)
		}
		if first.String() != second.String() {
			t.Fatalf("%q was written as %q and then as %q", text, first, second)
		}
		for i, s := range first.Sections {
			for j, k := range s.Keys {
				if got := second.Sections[i].Keys[j]; got.Value != k.Value || got.Bare != k.Bare || !strings.EqualFold(got.Name, k.Name) {
					t.Fatalf("%q: %+v became %+v", text, k, got)
				}
			}
		}
	})
}
