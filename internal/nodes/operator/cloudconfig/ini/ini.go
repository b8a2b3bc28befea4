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
	"slices"
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

// Section returns a section, or nil. Names are equal in any case, names of
// subsections only as they are.
func (f *File) Section(name, sub string) *Section {
	for _, s := range f.Sections {
		if strings.EqualFold(s.Name, name) && s.Sub == sub {
			return s
		}
	}
	return nil
}

// Add returns a section, which it adds at the end when there is none.
func (f *File) Add(name string) *Section { return f.add(name, "", 0) }

func (f *File) add(name, sub string, line int) *Section {
	s := f.Section(name, sub)
	if s == nil {
		s = &Section{Name: name, Sub: sub, Line: line}
		f.Sections = append(f.Sections, s)
	}
	return s
}

// Remove removes a section.
func (f *File) Remove(name string) {
	f.Sections = slices.DeleteFunc(f.Sections, func(s *Section) bool { return strings.EqualFold(s.Name, name) && s.Sub == "" })
}

// Get returns a key's value: the last one, as its readers do, and whether there
// is one.
func (s *Section) Get(name string) (string, bool) {
	for _, k := range slices.Backward(s.Keys) {
		if k.is(name) {
			return k.Text(), true
		}
	}
	return "", false
}

// Set makes a key have this value alone.
func (s *Section) Set(name, value string) {
	key, at := Key{Name: name}, slices.IndexFunc(s.Keys, func(k Key) bool { return k.is(name) })
	if at < 0 {
		at = len(s.Keys)
	} else {
		key = s.Keys[at]
	}
	key.Value, key.Bare = value, false
	s.Delete(name)
	s.Keys = slices.Insert(s.Keys, at, key)
}

// Default sets a key that has no value or an empty one.
func (s *Section) Default(name, value string) {
	if old, _ := s.Get(name); old == "" {
		s.Set(name, value)
	}
}

// Delete removes a key.
func (s *Section) Delete(name string) {
	s.Keys = slices.DeleteFunc(s.Keys, func(k Key) bool { return k.is(name) })
}

func (k Key) is(name string) bool { return strings.EqualFold(k.Name, name) }

// Text returns the value; for a key without one it returns true.
func (k Key) Text() string {
	if k.Bare {
		return "true"
	}
	return k.Value
}

// String writes the file.
func (f *File) String() string {
	sections := make([]string, len(f.Sections))
	for i, s := range f.Sections {
		sections[i] = s.String() + "\n"
		for _, k := range s.Keys {
			sections[i] += k.String() + "\n"
		}
	}
	return strings.Join(sections, "\n")
}

// String returns the section's header.
func (s *Section) String() string {
	if s.Sub == "" {
		return "[" + s.Name + "]"
	}
	return "[" + s.Name + ` "` + escape(s.Sub) + `"]`
}

// String returns the key's line.
func (k Key) String() string {
	switch {
	case k.Bare:
		return k.Name
	case k.Value != strings.TrimSpace(k.Value) || strings.ContainsAny(k.Value, "\"\\;#\n\t\r"):
		return k.Name + ` = "` + escape(k.Value) + `"`
	default:
		return strings.TrimRight(k.Name+" = "+k.Value, " ")
	}
}

func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(text)
}

// Parse reads a file. Errors name the line and show no value: these files hold
// passwords.
func Parse(text string) (*File, error) {
	p := &parser{rest: strings.TrimPrefix(text, "\ufeff"), line: 1, file: &File{}}
	if before, _, invalid := strings.Cut(strings.ToValidUTF8(p.rest, "\x00"), "\x00"); invalid {
		p.line += strings.Count(before, "\n")
		return nil, p.fail("not UTF-8 text")
	}
	for p.rest != "" {
		if err := p.parseLine(); err != nil {
			return nil, err
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
		p.line++
	}
	return p.file, nil
}

type parser struct {
	rest    string
	line    int
	file    *File
	section *Section
}

func (p *parser) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", p.line, fmt.Sprintf(format, args...))
}

func (p *parser) parseLine() error {
	p.skipSpace()
	switch {
	case p.atEnd():
		return nil
	case p.rest[0] == '[':
		return p.parseHeader()
	case p.section == nil:
		return p.fail("expected section header")
	default:
		return p.parseKey()
	}
}

func (p *parser) skipSpace() { p.rest = strings.TrimLeft(p.rest, " \t\r") }

// atEnd reports whether what follows in the line is nothing or a comment.
func (p *parser) atEnd() bool { return p.rest == "" || strings.IndexByte("\n;#", p.rest[0]) >= 0 }

// identifier reads a name, which is empty if there is none.
func (p *parser) identifier() string {
	after := strings.TrimLeftFunc(p.rest, func(r rune) bool { return unicode.IsLetter(r) || '0' <= r && r <= '9' || r == '-' })
	name := p.rest[:len(p.rest)-len(after)]
	if r, _ := utf8.DecodeRuneInString(name); !unicode.IsLetter(r) {
		return ""
	}
	p.rest = after
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
		if sub, err = p.subsection(name); err != nil {
			return err
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
	p.section = p.file.add(name, sub, p.line)
	return nil
}

// subsection reads a subsection's name, where only quotes and backslashes may be
// escaped.
func (p *parser) subsection(of string) (string, error) {
	var b strings.Builder
	for i := 1; i < len(p.rest) && p.rest[i] != '\n'; i++ {
		switch p.rest[i] {
		case '"':
			if p.rest = p.rest[i+1:]; b.Len() == 0 {
				return "", p.fail("[%s]: empty subsection name", of)
			}
			return b.String(), nil
		case '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", p.fail("[%s: unknown escape sequence in the subsection's name", of)
			}
		}
		b.WriteByte(p.rest[i])
	}
	return "", p.fail("subsection name is not terminated by a quote")
}

func (p *parser) parseKey() (err error) {
	k := Key{Line: p.line, Name: p.identifier()}
	if k.Name == "" {
		return p.fail("expected section header or key, in section %s", p.section)
	}
	p.skipSpace()
	if k.Bare = p.atEnd(); !k.Bare {
		if p.rest[0] != '=' {
			return p.fail("%s %s: expected '='", p.section, k.Name)
		}
		p.rest = p.rest[1:]
		p.skipSpace()
		if k.Value, err = p.value(k.Name); err != nil {
			return err
		}
	}
	p.section.Keys = append(p.section.Keys, k)
	return nil
}

// value reads up to a comment or the line's end. Space at the end is not part
// of it unless quoted.
func (p *parser) value(key string) (string, error) {
	var text strings.Builder
	end, quoted := 0, false // end is the length of text without space at its end
	for p.rest != "" && (quoted && p.rest[0] != '\n' || !quoted && !p.atEnd()) {
		c := p.rest[0]
		p.rest = p.rest[1:]
		after := strings.TrimPrefix(p.rest, "\r")
		switch {
		case c == '\\' && !quoted && strings.HasPrefix(after, "\n"): // the value goes on in the next line
			p.rest = after[1:]
			p.line++
			continue
		case c == '\\':
			if p.rest == "" || escapes[p.rest[0]] == 0 || !quoted && p.rest[0] != '"' {
				return "", p.fail(`%s %s: unknown escape sequence; put the value in quotes and write a backslash as \\`, p.section, key)
			}
			text.WriteByte(escapes[p.rest[0]])
			p.rest = p.rest[1:]
		case c == '"':
			quoted = !quoted
		default:
			text.WriteByte(c)
			if !quoted && strings.IndexByte(" \t\r", c) >= 0 {
				continue
			}
		}
		end = text.Len()
	}
	if quoted {
		return "", p.fail("%s %s: string is not terminated by a quote", p.section, key)
	}
	return text.String()[:end], nil
}

var escapes = map[byte]byte{'\\': '\\', '"': '"', 'n': '\n', 't': '\t'}
