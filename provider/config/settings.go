// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Settings are those of a program: the tagged fields of a struct of its own, into which
// defaults, variables and flags are written. Fields have the tags of [New] but label, and
//
//	means  flags that this one stands for: of a bool as log-level=debug,log-format=text,
//	       of others as log-level, which gets the same value
//	group  heading of this setting and of those after it
//
// A field that implements [encoding.TextUnmarshaler] gets the text of each flag that is
// repeated; pairs of a map add up.
type Settings struct {
	// Dash is before flags in texts: one or two.
	Dash  string
	all   []*setting
	wrong []error
}

type setting struct {
	member
	means []string
	group string
	// byFlag says that a flag has set it, to last.
	byFlag bool
	last   string
}

// Bind returns the settings of the struct that ptr points to, which then has the defaults.
// What a field has already is its default. It panics when the tags are wrong, as [New] does.
func Bind(ptr any) *Settings {
	s := &Settings{Dash: "-"}
	group := ""
	for _, m := range mustMembers(ptr) {
		group = cmp.Or(m.tag.Get("group"), group)
		one := &setting{member: m, means: parseList(m.tag.Get("means")), group: group}
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

// LoadEnv takes values from the environment for what no flag has set. Before flags are
// parsed, it reads what they will replace as well, and reports what is wrong with it.
func (s *Settings) LoadEnv(getenv func(string) string) {
	for _, one := range s.all {
		if one.Env == "" || one.byFlag {
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
	if err := setField(one.value, text); err != nil {
		if one.Secret {
			return errors.New("the value does not parse")
		}
		return fmt.Errorf("%q: %w", text, err)
	}
	if one.Type == Bool && !one.value.Bool() {
		return nil
	}
	for _, other := range one.means {
		flag, fixed, _ := strings.Cut(other, "=")
		i := slices.IndexFunc(s.all, func(one *setting) bool { return one.Flag == flag })
		if err := s.set(s.all[i], cmp.Or(fixed, text)); err != nil {
			return err
		}
	}
	return nil
}

// AddFlags adds flags, except for those that are there already. What is wrong with their
// values is reported by Err.
func (s *Settings) AddFlags(flags *flag.FlagSet) {
	for _, one := range s.all {
		if one.Flag != "" && flags.Lookup(one.Flag) == nil {
			flags.Var(&settingFlag{s, one}, one.Flag, one.flagUsage())
		}
	}
}

// settingFlag is the flag.Value, and that of pflag, of one setting.
type settingFlag struct {
	settings *Settings
	one      *setting
}

func (f *settingFlag) Set(text string) error {
	if f.one.byFlag && f.one.Type == Map { // repeated
		text = mergeMaps(f.one.last, text)
	}
	f.one.byFlag, f.one.last = true, text
	f.settings.note("flag "+f.settings.Dash+f.one.Flag+" ", f.settings.set(f.one, text))
	return nil
}

// mergeMaps returns a map's text with the pairs of a later one, which win.
func mergeMaps(text, later string) string {
	all, err := parseMap(text)
	more, wrong := parseMap(later)
	if err != nil || wrong != nil {
		return later
	}
	maps.Copy(all, more)
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		pairs = append(pairs, key+"="+all[key])
	}
	return strings.Join(pairs, ",")
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
	value := one.value.Interface()
	switch {
	case one.value.IsZero() && (one.Type == String || one.Type == Map):
		return ""
	case one.Secret:
		return Redacted
	case one.Type == List:
		return strings.Join(value.([]string), ",")
	}
	return fmt.Sprint(value)
}

// All returns the settings with their values as text, or only those below the headings.
func (s *Settings) All(headings ...string) iter.Seq2[Field, string] {
	return func(yield func(Field, string) bool) {
		for _, one := range s.all {
			if wanted := len(headings) == 0 || slices.Contains(headings, one.group); wanted && !yield(one.Field, one.text()) {
				return
			}
		}
	}
}

// eachGroup calls do for the settings below each heading.
func (s *Settings) eachGroup(do func(heading string, fields []Field)) {
	var fields []Field
	for i, one := range s.all {
		fields = append(fields, one.Field)
		if i+1 == len(s.all) || s.all[i+1].group != one.group {
			do(one.group, fields)
			fields = nil
		}
	}
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
