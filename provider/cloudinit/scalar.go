// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Indentation of the document. The block indicator counts from the entry's
// keys, which stand at entryIndent.
const (
	entryIndent   = "    "
	contentIndent = entryIndent + "  "
	explicit      = "2"
)

// plain matches what YAML reads back as the same string without quotes: a
// path never looks like a number, a boolean or null since it begins with '/'.
var plain = regexp.MustCompile(`^/[A-Za-z0-9/._-]*$`)

func (f WriteFile) write(doc *strings.Builder) {
	fmt.Fprintf(doc, "  - path: %s\n", scalar(f.Path))
	f.writeContent(doc)
	if f.Owner != "" {
		f.writeKey(doc, "owner", quote(f.Owner))
	}
	if f.Permissions != "" {
		f.writeKey(doc, "permissions", quote(f.Permissions))
	}
	if f.Append {
		f.writeKey(doc, "append", "true")
	}
}

func (f WriteFile) writeKey(doc *strings.Builder, key, value string) {
	fmt.Fprintf(doc, "%s%s: %s\n", entryIndent, key, value)
}

func (f WriteFile) writeContent(doc *strings.Builder) {
	switch {
	case f.Encoding == EncodingBase64, f.Encoding == "base64", !utf8.ValidString(f.Content):
		f.writeKey(doc, "encoding", EncodingBase64)
		f.writeKey(doc, "content", quote(base64.StdEncoding.EncodeToString([]byte(f.Content))))
	case fitsBlock(f.Content):
		f.writeKey(doc, "content", "|"+indicators(f.Content))
		writeBlock(doc, f.Content)
	default:
		f.writeKey(doc, "content", quote(f.Content))
	}
}

// fitsBlock reports whether a literal block scalar holds text exactly. It cannot
// hold what YAML takes for a line break other than LF (1.1 counts NEL, LS and
// PS), nor what it does not count as printable; and of a text without any
// visible line the readers in the field disagree.
func fitsBlock(text string) bool {
	return strings.Trim(text, " \t\n") != "" && strings.IndexFunc(text, notPrintable) < 0
}

// notPrintable reports whether a character is outside of YAML 1.2's c-printable
// (section 5.1), or one of the line breaks of YAML 1.1 or the byte order mark.
func notPrintable(r rune) bool {
	switch {
	case r == '\t', r == '\n', r >= ' ' && r <= '~':
		return false
	case r < 0xA0, r == 0x2028, r == 0x2029, r == 0xFEFF, r >= 0xFFFE && r <= 0xFFFF:
		return true
	}
	return false
}

// indicators returns the header of the block scalar: an explicit indentation
// where the first visible line begins with white space or a blank line could
// be taken for it, and how its last line breaks are kept.
func indicators(text string) string {
	var marks string
	if strings.ContainsRune(" \t\n", rune(text[0])) {
		marks = explicit
	}
	switch {
	case !strings.HasSuffix(text, "\n"):
		return marks + "-"
	case strings.HasSuffix(text, "\n\n"):
		return marks + "+"
	}
	return marks
}

func writeBlock(doc *strings.Builder, text string) {
	for line := range strings.Lines(strings.TrimSuffix(text, "\n") + "\n") {
		if line != "\n" {
			doc.WriteString(contentIndent)
		}
		doc.WriteString(line)
	}
}

func scalar(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return quote(s)
}

// quote writes a double-quoted YAML scalar on one line. s is valid UTF-8.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case notPrintable(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
