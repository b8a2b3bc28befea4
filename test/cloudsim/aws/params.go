// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params are the parameters of a call, by their names on the wire, below a
// prefix.
type params struct {
	form   url.Values
	prefix string
}

func (p params) get(name string) string { return p.form.Get(p.prefix + name) }

func (p params) has(name string) bool { return p.form.Has(p.prefix + name) }

func (p params) flag(name string) bool { return strings.EqualFold(p.get(name), "true") }

func (p params) number(name string, absent int) int {
	if n, err := strconv.Atoi(p.get(name)); err == nil {
		return n
	}
	return absent
}

func (p params) in(name string) params { return params{p.form, p.prefix + name + "."} }

// any reports whether there is anything below the prefix.
func (p params) any() bool {
	for key := range p.form {
		if strings.HasPrefix(key, p.prefix) {
			return true
		}
	}
	return false
}

// each returns the entries of a list of structures.
func (p params) each(name string) []params {
	var list []params
	for i := 1; ; i++ {
		entry := p.in(name + "." + strconv.Itoa(i))
		if !entry.any() {
			return list
		}
		list = append(list, entry)
	}
}

// strings returns the entries of a list of texts.
func (p params) strings(name string) []string {
	var list []string
	for i := 1; p.has(name + "." + strconv.Itoa(i)); i++ {
		list = append(list, p.get(name+"."+strconv.Itoa(i)))
	}
	return list
}

// checker holds one request against the definition.
type checker struct {
	d    *definition
	form url.Values
	used map[string]bool
	// there are all names in the form and what begins them before a dot.
	there map[string]bool
}

// check refuses a form that is not what the definition of the operation says.
func (d *definition) check(operationName string, form url.Values) *failure {
	op := d.Operations[operationName]
	if op == nil {
		return fail("InvalidAction", "The action %s is not valid for this web service.", operationName)
	}
	if version := form.Get("Version"); version != d.Metadata.APIVersion {
		return fail("NoSuchVersion", "The requested version (%s) of service is not valid.", version)
	}
	c := &checker{d, form, map[string]bool{"Action": true, "Version": true}, map[string]bool{}}
	for key := range form {
		for at := len(key); at > 0; at = strings.LastIndexByte(key[:at], '.') {
			c.there[key[:at]] = true
		}
	}
	if op.Input != nil {
		if f := c.structure(d.shape(op.Input), ""); f != nil {
			return f
		}
	}
	for key, values := range form {
		if !c.used[key] {
			return fail("UnknownParameter", "The parameter %s is not recognized", key)
		}
		if len(values) != 1 {
			return fail("InvalidParameterValue", "The parameter %s is there %d times", key, len(values))
		}
	}
	return nil
}

func (c *checker) structure(s *shape, prefix string) *failure {
	for _, name := range s.Required {
		if !c.present(prefix + c.wireName(name, s.Members[name])) {
			return fail("MissingParameter", "The request must contain the parameter %s", prefix+c.wireName(name, s.Members[name]))
		}
	}
	for name, m := range s.Members {
		if at := prefix + c.wireName(name, m); c.present(at) {
			if f := c.value(m, at); f != nil {
				return f
			}
		}
	}
	return nil
}

// wireName is the rule of protocol ec2 (AWS, "Amazon EC2 query protocol",
// query key resolution); protocol query takes names as they are.
func (c *checker) wireName(name string, m *member) string {
	if c.d.Metadata.Protocol != "ec2" {
		return name
	}
	switch {
	case m.QueryName != "":
		return m.QueryName
	case m.LocationName != "":
		return strings.ToUpper(m.LocationName[:1]) + m.LocationName[1:]
	}
	return name
}

func (c *checker) present(at string) bool { return c.there[at] }

func (c *checker) value(m *member, at string) *failure {
	s := c.d.shape(m)
	switch s.Type {
	case "structure":
		return c.structure(s, at+".")
	case "list":
		return c.list(s, at)
	}
	if !c.form.Has(at) {
		return fail("InvalidParameterValue", "The parameter %s is not a structure", at)
	}
	c.used[at] = true
	return s.scalar(at, c.form.Get(at))
}

func (c *checker) list(s *shape, at string) *failure {
	if c.d.Metadata.Protocol != "ec2" {
		at += ".member"
	}
	for i := 1; ; i++ {
		entry := at + "." + strconv.Itoa(i)
		if !c.present(entry) {
			return nil
		}
		if f := c.value(s.Member, entry); f != nil {
			return f
		}
	}
}

func (s *shape) scalar(at, text string) *failure {
	var err error
	switch s.Type {
	case "integer", "long":
		_, err = strconv.ParseInt(text, 10, 64)
	case "float", "double":
		_, err = strconv.ParseFloat(text, 64)
	case "boolean":
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	case "timestamp":
		_, err = time.Parse(time.RFC3339, text)
	case "blob":
		_, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil {
		return fail("InvalidParameterValue", "Value (%s) for parameter %s is invalid: it is not a %s", text, at, s.Type)
	}
	return s.bounds(at, text)
}

func (s *shape) bounds(at, text string) *failure {
	size := float64(len(text))
	if s.Type != "string" {
		size, _ = strconv.ParseFloat(text, 64) // only numbers have bounds besides
	}
	switch {
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, text):
		return fail("InvalidParameterValue", "Value (%s) for parameter %s is invalid: it is none of %d values", text, at, len(s.Enum))
	case s.Min != nil && size < *s.Min, s.Max != nil && size > *s.Max:
		return fail("InvalidParameterValue", "Value (%s) for parameter %s is out of bounds", text, at)
	}
	if s.Pattern != "" {
		if pattern, err := regexp.Compile("^(?:" + s.Pattern + ")$"); err == nil && !pattern.MatchString(text) {
			return fail("InvalidParameterValue", "Value (%s) for parameter %s is invalid: it does not match %s", text, at, s.Pattern)
		}
	}
	return nil
}
