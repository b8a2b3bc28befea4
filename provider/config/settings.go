// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Settings are those of a program: the tagged fields of a struct of its own, into which
// defaults, variables and flags are written. Fields have the tags of [New] but label, and
//
//	alias  other flags of the same meaning, with commas
//	means  of a bool: the flags that it stands for, as log-level=debug,log-format=text
//	group  heading of this setting and of those after it
//
// A field that implements [encoding.TextUnmarshaler] gets the text of each flag that is
// repeated. A value that does not parse is an error also where another one replaces it.
type Settings struct {
	// Dash is before flags in texts: one or two.
	Dash  string
	all   []*setting
	wrong []error
}

type setting struct {
	member
	aliases []string
	means   []string
	group   string
}

// Bind returns the settings of the struct that ptr points to, which then has the defaults.
// What a field has already is its default. It panics when the tags are wrong, as [New] does.
func Bind(ptr any) *Settings {
	s := &Settings{Dash: "-"}
	group := ""
	for _, m := range mustMembers(ptr) {
		if named, ok := m.tag.Lookup("group"); ok {
			group = named
		}
		one := &setting{m, parseList(m.tag.Get("alias")), parseList(m.tag.Get("means")), group}
		switch {
		case !m.value.IsZero():
			one.Default = one.text()
		case m.Default != "":
			if err := setField(m.value, m.Default); err != nil {
				panic(fmt.Errorf("%s: default: %w", m.Title(), err))
			}
		}
		s.all = append(s.all, one)
	}
	return s
}

// LoadEnv takes values from the environment. Call it before flags are parsed, which win.
func (s *Settings) LoadEnv(getenv func(string) string) {
	for _, one := range s.all {
		if one.Env == "" {
			continue
		}
		if text := getenv(one.Env); text != "" {
			s.note("variable "+one.Env+"=", s.set(one, text))
		}
	}
}

func (s *Settings) note(where string, err error) {
	if err != nil {
		s.wrong = append(s.wrong, fmt.Errorf("%s%w", where, err))
	}
}

// Err returns everything that was wrong with variables and flags.
func (s *Settings) Err() error { return errors.Join(s.wrong...) }

// set writes a value. Its error begins with the value, unless that is secret.
func (s *Settings) set(one *setting, text string) error {
	if err := one.Check(text); err != nil {
		return err
	}
	if one.value.Kind() == reflect.Slice {
		one.value.SetZero()
	}
	if err := setField(one.value, text); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if len(one.means) > 0 && one.value.Bool() {
		return s.setAll(one.means)
	}
	return nil
}

func (s *Settings) setAll(pairs []string) error {
	for _, pair := range pairs {
		flag, text, _ := strings.Cut(pair, "=")
		i := slices.IndexFunc(s.all, func(one *setting) bool { return one.Flag == flag })
		if err := s.set(s.all[i], text); err != nil {
			return err
		}
	}
	return nil
}

// AddFlags adds flags, except for those that are there already. What is wrong with their
// values is reported by Err.
func (s *Settings) AddFlags(flags *flag.FlagSet) {
	for _, one := range s.all {
		for _, name := range append([]string{one.Flag}, one.aliases...) {
			if name != "" && flags.Lookup(name) == nil {
				flags.Var(&settingFlag{s, one, name}, name, one.flagUsage())
			}
		}
	}
}

// settingFlag is the flag.Value, and that of pflag, of one setting.
type settingFlag struct {
	settings *Settings
	one      *setting
	name     string
}

func (f *settingFlag) Set(text string) error {
	f.settings.note("flag "+f.settings.Dash+f.name+" ", f.settings.set(f.one, text))
	return nil
}

// String implements flag.Value. Package flag also calls it on a zero value.
func (f *settingFlag) String() string {
	if f == nil || f.one == nil {
		return ""
	}
	return f.one.text()
}

func (f *settingFlag) Type() string     { return f.one.placeholder() }
func (f *settingFlag) IsBoolFlag() bool { return f.one.Type == Bool }

// text returns the value; a secret one is not shown.
func (one *setting) text() string {
	switch value := one.value.Interface().(type) {
	case []string:
		return strings.Join(value, ",")
	case string:
		if one.Secret {
			return Secret(value).String()
		}
	}
	return fmt.Sprint(one.value.Interface())
}

// Shown returns all settings with their values, for a log. Long values are left out.
func (s *Settings) Shown() (attrs []any) {
	for _, one := range s.all {
		text := one.text()
		if len(text) > 100 {
			text = fmt.Sprintf("(%d bytes)", len(text))
		}
		attrs = append(attrs, one.Name, text)
	}
	return attrs
}

// eachGroup calls do for the settings below each heading. Aliases are among them.
func (s *Settings) eachGroup(do func(heading string, fields []Field)) {
	var fields []Field
	for i, one := range s.all {
		fields = append(fields, one.Field)
		for _, name := range one.aliases {
			fields = append(fields, Field{Flag: name, Type: one.Type, Usage: "the same as " + s.Dash + one.Flag})
		}
		if i+1 == len(s.all) || s.all[i+1].group != one.group {
			do(one.group, fields)
			fields = nil
		}
	}
}

// Fields returns all settings, aliases included.
func (s *Settings) Fields() (all []Field) {
	s.eachGroup(func(_ string, fields []Field) { all = append(all, fields...) })
	return all
}

// WriteHelp writes the settings for a terminal.
func (s *Settings) WriteHelp(w io.Writer) {
	s.eachGroup(func(heading string, fields []Field) {
		fmt.Fprintf(w, "\n%s:\n", cmp.Or(heading, "Flags and variables"))
		writeHelp(w, s.Dash, fields)
	})
}

// WriteMarkdown writes the settings as Markdown tables.
func (s *Settings) WriteMarkdown(w io.Writer) {
	s.eachGroup(func(heading string, fields []Field) {
		fmt.Fprintf(w, "\n## %s\n\n", cmp.Or(heading, "Flags and variables"))
		writeMarkdown(w, s.Dash, fields)
	})
}
