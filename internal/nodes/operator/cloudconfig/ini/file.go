// SPDX-License-Identifier: Apache-2.0

package ini

import (
	"slices"
	"strings"
)

// String returns the section's header.
func (s *Section) String() string {
	if s.Sub == "" {
		return "[" + s.Name + "]"
	}
	return "[" + s.Name + ` "` + escape(s.Sub) + `"]`
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
func (f *File) Add(name string) *Section {
	if s := f.Section(name, ""); s != nil {
		return s
	}
	s := &Section{Name: name}
	f.Sections = append(f.Sections, s)
	return s
}

// Remove removes a section.
func (f *File) Remove(name string) {
	f.Sections = slices.DeleteFunc(f.Sections, func(s *Section) bool { return strings.EqualFold(s.Name, name) && s.Sub == "" })
}

// Get returns a key's value: the last one, as its readers do, and whether there
// is one.
func (s *Section) Get(name string) (string, bool) {
	k := s.key(name)
	if k == nil {
		return "", false
	}
	return k.Text(), true
}

func (s *Section) key(name string) *Key {
	for i := range slices.Backward(s.Keys) {
		if strings.EqualFold(s.Keys[i].Name, name) {
			return &s.Keys[i]
		}
	}
	return nil
}

// Set makes a key have this value alone.
func (s *Section) Set(name, value string) {
	at := slices.IndexFunc(s.Keys, func(k Key) bool { return strings.EqualFold(k.Name, name) })
	if at < 0 {
		s.Keys = append(s.Keys, Key{Name: name, Value: value})
		return
	}
	s.Keys[at].Value, s.Keys[at].Bare = value, false
	first := s.Keys[at]
	s.Delete(name)
	s.Keys = slices.Insert(s.Keys, at, first)
}

// Default sets a key that has no value or an empty one.
func (s *Section) Default(name, value string) {
	if old, _ := s.Get(name); old == "" {
		s.Set(name, value)
	}
}

// Delete removes a key.
func (s *Section) Delete(name string) {
	s.Keys = slices.DeleteFunc(s.Keys, func(k Key) bool { return strings.EqualFold(k.Name, name) })
}

// Text returns the value; for a key without one it returns true.
func (k Key) Text() string {
	if k.Bare {
		return "true"
	}
	return k.Value
}

// String writes the file.
func (f *File) String() string {
	var b strings.Builder
	for i, s := range f.Sections {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.String() + "\n")
		for _, k := range s.Keys {
			b.WriteString(k.String() + "\n")
		}
	}
	return b.String()
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
