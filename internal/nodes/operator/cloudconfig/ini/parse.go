// SPDX-License-Identifier: Apache-2.0

// Package ini reads and writes the configuration files of cloud providers that
// have sections and keys: the dialect of Git's configuration, which is what
// these providers parse. It differs from what INI libraries take for granted:
// a value may be quoted in part, a backslash escapes, a comment begins
// anywhere outside of quotes, a key without a value means true, names are equal
// in any case, and a key may be repeated. All of a file but its comments is
// kept, also what nobody knows.
package ini

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// File is the sections of a file, in order.
type File struct{ Sections []*Section }

// Section is a section such as [Name] or [Name "Sub"]. A section that stands
// twice in a file is one.
type Section struct {
	Name, Sub string
	// Line is where the section begins; 0 for one that was added.
	Line int
	Keys []Key
}

// Key is a key with a value. Bare is a key without a value, which means true.
type Key struct {
	Name, Value string
	Bare        bool
	// Line is where the key stands; 0 for one that was added.
	Line int
}

// SyntaxError is what is wrong in a line of a file. It shows no value: these
// files hold passwords.
type SyntaxError struct {
	Line int
	Text string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Parse reads a file. Every error is a [SyntaxError].
func Parse(text string) (*File, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	if at := invalid(text); at >= 0 {
		return nil, &SyntaxError{1 + strings.Count(text[:at], "\n"), "not UTF-8 text"}
	}
	p := &parser{rest: text, line: 1, file: &File{}}
	for p.rest != "" {
		if err := p.parseLine(); err != nil {
			return nil, err
		}
	}
	return p.file, nil
}

func invalid(text string) int {
	for i, r := range text {
		if r == 0 {
			return i
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}

type parser struct {
	rest    string
	line    int
	file    *File
	section *Section
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{p.line, fmt.Sprintf(format, args...)}
}

func (p *parser) parseLine() error {
	p.skipSpace()
	var err error
	switch {
	case p.atEnd():
	case p.rest[0] == '[':
		err = p.parseHeader()
	case p.section == nil:
		err = p.fail("expected section header")
	default:
		err = p.parseKey()
	}
	if err != nil {
		return err
	}
	p.nextLine()
	return nil
}

func (p *parser) skipSpace() { p.rest = strings.TrimLeft(p.rest, " \t\r") }

// atEnd reports whether what follows in the line is nothing or a comment.
func (p *parser) atEnd() bool { return p.rest == "" || strings.ContainsRune("\n;#", rune(p.rest[0])) }

func (p *parser) nextLine() {
	_, p.rest, _ = strings.Cut(p.rest, "\n")
	p.line++
}

func (p *parser) identifier() string {
	end := strings.IndexFunc(p.rest, func(r rune) bool { return !unicode.IsLetter(r) && !('0' <= r && r <= '9') && r != '-' })
	if end < 0 {
		end = len(p.rest)
	}
	name := p.rest[:end]
	if r, _ := utf8.DecodeRuneInString(name); !unicode.IsLetter(r) {
		return ""
	}
	p.rest = p.rest[end:]
	return name
}

func (p *parser) parseHeader() error {
	p.rest = p.rest[1:]
	p.skipSpace()
	name, sub := p.identifier(), ""
	if name == "" {
		return p.fail("expected section name after [")
	}
	p.skipSpace()
	if strings.HasPrefix(p.rest, `"`) {
		var err error
		if sub, err = p.quoted(); err != nil {
			return err
		}
		if sub == "" {
			return p.fail("[%s]: empty subsection name", name)
		}
		p.skipSpace()
	}
	if !strings.HasPrefix(p.rest, "]") {
		return p.fail("[%s: expected right bracket", name)
	}
	p.rest = p.rest[1:]
	if p.skipSpace(); !p.atEnd() {
		return p.fail("[%s]: expected end of line after the right bracket", name)
	}
	if p.section = p.file.Section(name, sub); p.section == nil {
		p.section = &Section{Name: name, Sub: sub, Line: p.line}
		p.file.Sections = append(p.file.Sections, p.section)
	}
	return nil
}

// quoted reads a subsection's name, where only quotes and backslashes may be
// escaped.
func (p *parser) quoted() (string, error) {
	var b strings.Builder
	for i := 1; i < len(p.rest) && p.rest[i] != '\n'; i++ {
		switch c := p.rest[i]; c {
		case '"':
			p.rest = p.rest[i+1:]
			return b.String(), nil
		case '\\':
			i++
			if i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", p.fail("[%s: unknown escape sequence in the subsection's name", p.sectionName())
			}
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.fail("subsection name is not terminated by a quote")
}

func (p *parser) sectionName() string {
	if p.section == nil {
		return ""
	}
	return p.section.Name
}

func (p *parser) parseKey() error {
	line, name := p.line, p.identifier()
	if name == "" {
		return p.fail("expected section header or key, in section %s", p.section)
	}
	p.skipSpace()
	if p.atEnd() {
		p.section.Keys = append(p.section.Keys, Key{Name: name, Bare: true, Line: line})
		return nil
	}
	if p.rest[0] != '=' {
		return p.fail("%s %s: expected '='", p.section, name)
	}
	p.rest = p.rest[1:]
	p.rest = strings.TrimLeft(p.rest, " \t\r")
	value, err := p.value(name)
	if err != nil {
		return err
	}
	p.section.Keys = append(p.section.Keys, Key{Name: name, Value: value, Line: line})
	return nil
}

// value reads up to a comment or the line's end. Space at the end is not part
// of it unless quoted.
func (p *parser) value(key string) (string, error) {
	v := valueReader{parser: p, key: key}
	for v.at < len(p.rest) {
		done, err := v.step()
		if err != nil {
			return "", err
		}
		if done {
			break
		}
	}
	if v.quoted {
		return "", p.fail("%s %s: string is not terminated by a quote", p.section, key)
	}
	p.rest = p.rest[v.at:]
	return v.text.String()[:v.end], nil
}

type valueReader struct {
	*parser
	key    string
	text   strings.Builder
	at     int
	end    int // of text without space at its end
	quoted bool
}

// step takes a character, or the two of an escape.
func (v *valueReader) step() (done bool, err error) {
	c := v.rest[v.at]
	switch {
	case c == '\n' && v.quoted:
		return false, v.fail("%s %s: string is not terminated by a quote", v.section, v.key)
	case !v.quoted && strings.IndexByte("\n;#", c) >= 0:
		return true, nil
	case c == '\\':
		return false, v.escape()
	case c == '"':
		v.quoted = !v.quoted
		v.end = v.text.Len()
	default:
		v.text.WriteByte(c)
		if v.quoted || strings.IndexByte(" \t\r", c) < 0 {
			v.end = v.text.Len()
		}
	}
	v.at++
	return false, nil
}

var escapes = map[byte]byte{'\\': '\\', '"': '"', 'n': '\n', 't': '\t'}

func (v *valueReader) escape() error {
	following := v.rest[v.at+1:]
	if !v.quoted {
		if after := strings.TrimPrefix(following, "\r"); strings.HasPrefix(after, "\n") {
			v.at += 1 + len(following) - len(after) + 1
			v.line++
			return nil
		}
	}
	if following == "" || escapes[following[0]] == 0 || !v.quoted && following[0] != '"' {
		return v.fail(`%s %s: unknown escape sequence; put the value in quotes and write a backslash as \\`, v.section, v.key)
	}
	v.text.WriteByte(escapes[following[0]])
	v.end = v.text.Len()
	v.at += 2
	return nil
}
