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
	"slices"
	"strings"
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
