// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGenerateDocument(t *testing.T) {
	got, err := CloudConfig{WriteFiles: []WriteFile{
		{Path: "/run/peerpod/apf.json", Content: "{\n  \"pod-name\": \"web\"\n}\n"},
		{Path: "/run/peerpod/aa.toml", Content: "x = 1", Owner: "root:root", Permissions: "0600", Append: true},
	}}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	want := `#cloud-config
write_files:
  - path: /run/peerpod/apf.json
    content: |
      {
        "pod-name": "web"
      }
  - path: /run/peerpod/aa.toml
    content: |-
      x = 1
    owner: "root:root"
    permissions: "0600"
    append: true
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// TestContentRoundTrip names how each content is carried, since guests that
// know only path and content must be able to read every text.
func TestContentRoundTrip(t *testing.T) {
	for _, tc := range []struct{ name, content, carried string }{
		{"one line", "a\n", "content: |\n"},
		{"no last line break", "a", "content: |-\n"},
		{"two last line breaks", "a\n\n", "content: |+\n"},
		{"leading spaces", "   a\nb\n", "content: |2\n"},
		{"leading tab", "\ta\n", "content: |2\n"},
		{"leading blank line", "\n  a\n", "content: |2\n"},
		{"leading line of spaces", "    \na\n", "content: |2\n"},
		{"leading spaces, no last break", " a\n b", "content: |2-\n"},
		{"tabs inside", "a\tb\t\n\tc\n", "content: |\n"},
		{"trailing spaces", "a  \nb  ", "content: |-\n"},
		{"spaces at the end", "a\n   ", "content: |-\n"},
		{"blank lines inside", "a\n\n\nb\n", "content: |\n"},
		{"looks like a document end", "---\n...\n#cloud-config\n", "content: |\n"},
		{"looks like a key", "path: /etc/shadow\n- path: x\n", "content: |\n"},
		{"umlaut and emoji", "grün 🚀\n", "content: |\n"},
		{"replacement character", "\uFFFD\n", "content: |\n"},
		{"empty", "", `content: ""`},
		{"only a line break", "\n", `content: "\n"`},
		{"only white space", " \n\t\n", `content: " \n\t\n"`},
		{"carriage return", "a\r\nb\r", `content: "a\r\nb\r"`},
		{"nul", "a\x00b", `content: "a\U00000000b"`},
		{"next line", "a\u0085b", `content: "a\U00000085b"`},
		{"line separator", "a\u2028b", `content: "a\U00002028b"`},
		{"byte order mark", "\uFEFFa", `content: "\U0000FEFFa"`},
		{"binary", "\xff\xfe\x00", "encoding: b64\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc := roundTrip(t, WriteFile{Path: "/a", Content: tc.content})
			if !strings.Contains(doc, tc.carried) {
				t.Errorf("the document does not carry it as %q:\n%s", tc.carried, doc)
			}
		})
	}
}

func TestPathRoundTrip(t *testing.T) {
	for _, path := range []string{"/run/peerpod/apf.json", "/with space", "/with: colon", "/#hash", `/"quote"\`, "/ü"} {
		roundTrip(t, WriteFile{Path: path, Content: "x"})
	}
}

// roundTrip writes the file between two others, whose content must not run
// into it, reads it back and returns the document.
func roundTrip(t *testing.T, file WriteFile) string {
	t.Helper()
	neighbour := WriteFile{Path: "/neighbour", Content: "n\n", Permissions: "0600"}
	want := []WriteFile{neighbour, file, neighbour}
	doc, err := CloudConfig{WriteFiles: want}.Generate()
	if err != nil {
		t.Fatalf("generate %+v: %v", file, err)
	}
	got, err := Parse([]byte(doc))
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, doc)
	}
	got.WriteFiles[1].Encoding = file.Encoding
	if diff := cmp.Diff(want, got.WriteFiles); diff != "" {
		t.Fatalf("files (-want +got):\n%s\n%s", diff, doc)
	}
	return doc
}

func TestForcedEncoding(t *testing.T) {
	file := WriteFile{Path: "/a", Content: "text\n", Encoding: EncodingBase64}
	if doc := roundTrip(t, file); strings.Contains(doc, "text") {
		t.Errorf("the text is not encoded:\n%s", doc)
	}
}

func TestGenerateRefuses(t *testing.T) {
	for want, file := range map[string]WriteFile{
		"path is missing":      {Content: "x"},
		"not an absolute":      {Path: "etc/passwd"},
		"clean path":           {Path: "/run/../etc/passwd"},
		"not printable":        {Path: "/a\nb"},
		"not user or":          {Path: "/a", Owner: "a b"},
		"not octal":            {Path: "/a", Permissions: "rwx"},
		"encoding \"gzip\"":    {Path: "/a", Encoding: "gzip"},
		"is not UTF-8":         {Path: "/a", Content: "\xff", Encoding: EncodingText},
		"bytes, limit 1048576": {Path: "/a", Content: strings.Repeat("x", MaxSize)},
	} {
		_, err := CloudConfig{WriteFiles: []WriteFile{file}}.Generate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want one with %q", file.Path, err, want)
		}
	}
}

func TestGenerateNothing(t *testing.T) {
	doc, err := CloudConfig{}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse([]byte(doc))
	if err != nil || len(got.WriteFiles) != 0 {
		t.Errorf("got %v, %v from %q", got, err, doc)
	}
}

func TestParseForeignDocument(t *testing.T) {
	got, err := Parse([]byte("#cloud-config  \n\n# by another writer\nwrite_files:\n" +
		"- content: 5\n  path: /a\n  permissions: 0644\n  append: false\n" +
		"- {path: /b, content: eHk=, encoding: base64, owner: root}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []WriteFile{
		{Path: "/a", Content: "5", Permissions: "0644"},
		{Path: "/b", Content: "xy", Encoding: "base64", Owner: "root"},
	}
	if diff := cmp.Diff(want, got.WriteFiles); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	const files = "#cloud-config\nwrite_files:\n"
	for _, tc := range []struct{ name, doc, want string }{
		{"empty", "", "first line"},
		{"no header", "write_files: []\n", "first line"},
		{"other header", "#!/bin/sh\n", "first line"},
		{"only header", "#cloud-config\n", "no document"},
		{"no files", "#cloud-config\n{}\n", "write_files is missing"},
		{"list", "#cloud-config\n- a\n", "not a mapping"},
		{"other key", "#cloud-config\nruncmd: [reboot]\n", `unknown key "runcmd"`},
		{"double root key", files + "  []\nwrite_files: []\n", "twice"},
		{"double key", files + "- path: /a\n  path: /b\n  content: x\n", `key "path" is there twice`},
		{"unknown key", files + "- path: /a\n  content: x\n  defer: true\n", `unknown key "defer"`},
		{"no path", files + "- content: x\n", "path is missing"},
		{"no content", files + "- path: /a\n", "content is missing"},
		{"null content", files + "- path: /a\n  content:\n", "empty value"},
		{"content map", files + "- path: /a\n  content: {a: b}\n", "not a string"},
		{"relative path", files + "- path: a\n  content: x\n", "absolute"},
		{"climbing path", files + "- path: /run/../a\n  content: x\n", "clean"},
		{"bad append", files + "- path: /a\n  content: x\n  append: maybe\n", "append"},
		{"bad base64", files + "- path: /a\n  content: '*'\n  encoding: b64\n", "not base64"},
		{"bad encoding", files + "- path: /a\n  content: x\n  encoding: gz\n", "encoding"},
		{"anchor", files + "- path: /a\n  content: &a x\n- path: /b\n  content: *a\n", "anchors"},
		{"tag", files + "- path: /a\n  content: !!binary eHk=\n", "tags"},
		{"second document", files + "  []\n---\na: b\n", "follows the document"},
		{"no yaml", files + "  [\n", "yaml"},
		{"no utf-8", files + "- path: /a\n  content: \xff\n", "UTF-8"},
		{"too large", "#cloud-config\n#" + strings.Repeat("x", MaxSize), "limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse([]byte(tc.doc))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v, error %v, want one with %q", got, err, tc.want)
			}
		})
	}
}

func TestParseErrorsKeepSecrets(t *testing.T) {
	const secret = "hunter2"
	for _, doc := range []string{
		"#cloud-config\nwrite_files:\n- path: /a\n  encoding: b64\n  content: '" + secret + "!'\n",
		"#cloud-config\nwrite_files:\n- path: /a\n  content: [" + secret + "]\n",
		"#cloud-config\nwrite_files:\n- path: /a\n  content: " + secret + ": " + secret + "\n",
		"#cloud-config\nwrite_files:\n- path: /a\n  content: |\n      a\n    " + secret + "\n",
	} {
		if _, err := Parse([]byte(doc)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v of %q", err, doc)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("#cloud-config\nwrite_files:\n  - path: /a\n    content: |\n      x\n"))
	f.Add([]byte("#cloud-config\nwrite_files: [{path: /a, content: eHk=, encoding: b64, append: true}]"))
	f.Add([]byte("#cloud-config\n? [a]\n: &b *b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse(data)
		if err != nil {
			return
		}
		doc, err := config.Generate()
		if err != nil {
			t.Fatalf("cannot write what was read: %v", err)
		}
		again, err := Parse([]byte(doc))
		if err != nil {
			t.Fatalf("cannot read what was written: %v\n%s", err, doc)
		}
		if diff := cmp.Diff(contents(config), contents(again)); diff != "" {
			t.Fatalf("files (-first +second):\n%s", diff)
		}
	})
}

func contents(config *CloudConfig) []WriteFile {
	files := []WriteFile{}
	for _, file := range config.WriteFiles {
		file.Encoding = ""
		files = append(files, file)
	}
	return files
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("/a", "text\n")
	f.Add("/with space", "  \n\t x\r\n\x00")
	f.Add("/b", "\n\n \n")
	f.Fuzz(func(t *testing.T, path, content string) {
		file := WriteFile{Path: path, Content: content}
		if file.check() != nil || len(content) > MaxSize/16 {
			t.Skip("not a document that the writer accepts: the fuzzer tries another")
		}
		roundTrip(t, file)
	})
}
