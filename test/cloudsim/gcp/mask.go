// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"strings"
)

// mask is a partial answer's selection (page "Improve performance, partial
// response"): a,b/c,d(e,f),*/g. An empty one selects everything.
type mask map[string]mask

// parseMask reads the parameter fields and checks it against the schema of the
// answer.
func (d *definition) parseMask(text string, s *schema) (mask, error) {
	m := mask{}
	rest, err := d.parseList(text, s, m)
	if err == nil && rest != "" {
		err = fmt.Errorf("invalid field selection %s", rest)
	}
	return m, err
}

func (d *definition) parseList(text string, s *schema, into mask) (rest string, err error) {
	for {
		if text, err = d.parseOne(text, s, into); err != nil || !strings.HasPrefix(text, ",") {
			return text, err
		}
		text = text[1:]
	}
}

func (d *definition) parseGroup(text string, s *schema, into mask) (string, error) {
	text, err := d.parseList(text[1:], s, into)
	if err == nil && !strings.HasPrefix(text, ")") {
		err = fmt.Errorf("invalid field selection: a ) is missing")
	}
	if err != nil {
		return "", err
	}
	return text[1:], nil
}

// parseOne reads one name, with what is below it.
func (d *definition) parseOne(text string, s *schema, into mask) (string, error) {
	end := strings.IndexAny(text, ",()/")
	name := text
	if end >= 0 {
		name, text = text[:end], text[end:]
	} else {
		text = ""
	}
	inner, ok := d.member(s, name)
	if !ok {
		return "", fmt.Errorf("invalid field selection %s", name)
	}
	below := mask{}
	into[name] = below
	switch {
	case strings.HasPrefix(text, "/"):
		return d.parseOne(text[1:], inner, below)
	case strings.HasPrefix(text, "("):
		return d.parseGroup(text, inner, below)
	}
	return text, nil
}

// member returns the schema of a field, looking through lists.
func (d *definition) member(s *schema, name string) (*schema, bool) {
	s = d.resolve(s)
	for s != nil && s.Type == "array" {
		s = d.resolve(s.Items)
	}
	switch {
	case s == nil:
		return nil, false
	case name == "*" && s.Additional != nil:
		return s.Additional, true
	case s.Properties[name] != nil:
		return s.Properties[name], true
	case s.Additional != nil:
		return s.Additional, true
	}
	return nil, false
}

// apply returns what is selected of a value.
func (m mask) apply(value any) any {
	if len(m) == 0 {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			below, ok := m[name]
			if !ok {
				below, ok = m["*"]
			}
			if ok {
				out[name] = below.apply(inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = m.apply(item)
		}
		return out
	}
	return value
}
