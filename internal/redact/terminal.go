// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"io"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Terminal returns a text that a guest has written, without what would steer the
// terminal that shows it: control sequences, titles, the clipboard, and letters
// that change the direction of others. Lines and tabs stay.
func Terminal(text []byte) []byte {
	var out bytes.Buffer
	c := &console{to: &out}
	c.Write(text) // a buffer takes all
	if len(c.rest) > 0 {
		out.WriteRune(utf8.RuneError)
	}
	return out.Bytes()
}

// Console returns a writer that passes on to w what [Terminal] leaves, also of
// sequences and letters that come in parts.
func Console(w io.Writer) io.Writer { return &console{to: w} }

type console struct {
	to io.Writer
	in sequence
	// returned: the last letter was a carriage return.
	returned bool
	// rest is the beginning of a letter whose other bytes are still to come.
	rest []byte
	out  []byte
}

// sequence is what the next letter belongs to (ECMA-48, 5.3 to 5.6).
type sequence int

const (
	inText sequence = iota
	afterEscape
	inControl // CSI, up to its final byte
	inString  // OSC, DCS, SOS, PM or APC, up to BEL or ST
)

// Write implements io.Writer.
func (c *console) Write(data []byte) (int, error) {
	all := slices.Concat(c.rest, data)
	c.rest, c.out = nil, c.out[:0]
	for len(all) > 0 {
		if !utf8.FullRune(all) {
			c.rest = all
			break
		}
		r, n := utf8.DecodeRune(all)
		c.take(r)
		all = all[n:]
	}
	if _, err := c.to.Write(c.out); err != nil {
		return 0, err
	}
	return len(data), nil
}

// take follows sequences. The end of a line ends each of them, so that one that
// is left open hides no more than its line.
func (c *console) take(r rune) {
	switch {
	case r == '\x1b':
		c.in = afterEscape
	case r == '\n':
		c.in = inText
		c.show(r)
	case c.in == afterEscape:
		c.in = opened(r)
	case c.in == inControl && r >= 0x40 && r <= 0x7e, c.in == inString && (r == '\a' || r == 0x9c):
		c.in = inText
	case c.in != inText:
	case r == 0x9b:
		c.in = inControl
	case r == 0x90 || r == 0x98 || r >= 0x9d && r <= 0x9f:
		c.in = inString
	default:
		c.show(r)
	}
}

// opened is the sequence that the letter after an escape begins.
func opened(r rune) sequence {
	switch {
	case r == '[':
		return inControl
	case r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_':
		return inString
	case r >= 0x20 && r <= 0x2f: // an intermediate byte, such as of a character set
		return afterEscape
	}
	return inText
}

func (c *console) show(r rune) {
	if c.returned && r != '\n' && r != '\r' {
		c.out = append(c.out, '\n')
	}
	c.returned = r == '\r'
	if r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) {
		c.out = utf8.AppendRune(c.out, r)
	}
}
