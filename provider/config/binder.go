// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Binder fills the settings of a schema from flags and environment. It knows
// nothing but the schema, so it serves providers in other processes too.
type Binder struct {
	schema Schema
	// given holds the values that were set, by name.
	given Values
	// origin says whether a value is of a flag or of the environment: flags win.
	origin map[string]string
	// wrong holds the errors of settings that do not parse, by name.
	wrong map[string]error
}

// NewBinder returns a binder with nothing set.
func NewBinder(schema Schema) *Binder {
	return &Binder{schema: schema, given: Values{}, origin: map[string]string{}, wrong: map[string]error{}}
}

// Schema returns the schema whose settings it fills.
func (b *Binder) Schema() Schema { return b.schema }

// ParseCmd registers a flag for each setting that has one. It forgets earlier values.
func (b *Binder) ParseCmd(flags *flag.FlagSet) {
	*b = *NewBinder(b.schema)
	for _, field := range b.schema.Fields {
		if field.Flag != "" {
			flags.Var(&flagValue{b, field}, field.Flag, field.flagUsage())
		}
	}
}

// flagValue is the flag.Value of one field.
type flagValue struct {
	binder *Binder
	field  Field
}

func (v *flagValue) Set(text string) error {
	if err := v.field.Check(text); err != nil {
		return err
	}
	v.binder.given[v.field.Name] = text
	v.binder.origin[v.field.Name] = "flag"
	delete(v.binder.wrong, v.field.Name)
	return nil
}

// String implements flag.Value. Package flag also calls it on a zero value.
func (v *flagValue) String() string {
	switch {
	case v == nil || v.binder == nil:
		return ""
	case v.field.Secret:
		return Secret(v.binder.given[v.field.Name]).String()
	}
	if given, ok := v.binder.given[v.field.Name]; ok {
		return given
	}
	return v.field.Default
}

func (v *flagValue) IsBoolFlag() bool { return v.field.Type == Bool }

// LoadFrom sets values from the environment that getenv has, unless a flag has set them. Values that do
// not parse are reported by [Binder.Values].
func (b *Binder) LoadFrom(getenv func(string) string) {
	for _, field := range b.schema.Fields {
		if field.Env == "" || b.origin[field.Name] == "flag" {
			continue
		}
		text := getenv(field.Env)
		if text == "" {
			continue
		}
		if err := field.Check(text); err != nil {
			b.wrong[field.Name] = field.bad("%v", err)
			continue
		}
		b.given[field.Name] = text
		b.origin[field.Name] = "env"
	}
}

// Set replaces all values. Unknown names, and values that do not parse, are reported
// by [Binder.Values].
func (b *Binder) Set(values Values) {
	*b = *NewBinder(b.schema)
	for name, text := range values {
		i := slices.IndexFunc(b.schema.Fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			b.wrong[name] = fmt.Errorf("%w: provider %s has no setting %q", provider.ErrInvalidArgument, b.schema.Provider, name)
			continue
		}
		if err := b.schema.Fields[i].Check(text); err != nil && text != "" {
			b.wrong[name] = b.schema.Fields[i].bad("%v", err)
			continue
		}
		b.given[name] = text
	}
}

// Values returns the values that were set, without defaults. The error is
// [provider.ErrInvalidArgument] and names everything that is wrong or missing.
func (b *Binder) Values() (Values, error) { return b.values(true) }

// values returns the values that were set. With complete, missing required settings
// are an error.
func (b *Binder) values(complete bool) (Values, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(b.wrong)) {
		errs = append(errs, b.wrong[name])
	}
	for _, field := range b.schema.Fields {
		if complete && field.Required && b.given[field.Name] == "" && field.Default == "" && b.wrong[field.Name] == nil {
			errs = append(errs, field.bad("%v", errMissing))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return maps.Clone(b.given), nil
}

// Check returns an error if text is not a value of the field. The error never contains
// a secret.
func (f Field) Check(text string) error {
	err := f.check(text)
	if err != nil && f.Secret {
		return fmt.Errorf("the value is not a %s", f.Type)
	}
	return err
}

func (f Field) check(text string) (err error) {
	if len(f.Choices) > 0 && !slices.Contains(f.Choices, text) {
		return fmt.Errorf("%q: want %s", text, strings.Join(f.Choices, " or "))
	}
	switch f.Type {
	case Bool:
		_, err = parseBool(text)
	case Int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%q: want a whole number%s", text, f.bounds(", "))
		}
		return f.checkBounds(n, text)
	case Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q: want a duration with its unit, such as 90s or 5m", text)
		}
		return f.checkBounds(int64(d), text)
	case Map:
		_, err = parseMap(text)
	}
	return err
}

func (f Field) checkBounds(n int64, text string) error {
	if f.Min != nil && n < *f.Min || f.Max != nil && n > *f.Max {
		return fmt.Errorf("%s: want %s", text, f.bounds(""))
	}
	return nil
}

// bounds returns in words, after the prefix, which values the field takes; empty if all.
func (f Field) bounds(prefix string) string {
	switch {
	case f.Min != nil && f.Max != nil:
		return fmt.Sprintf("%sfrom %d to %d", prefix, *f.Min, *f.Max)
	case f.Min != nil && *f.Min == 1 && f.Type == Duration:
		return prefix + "more than 0"
	case f.Min != nil:
		return fmt.Sprintf("%s%d or more", prefix, *f.Min)
	case f.Max != nil:
		return fmt.Sprintf("%s%d or less", prefix, *f.Max)
	}
	return ""
}

// parseBool accepts the values that upstream's variables accept, and no others.
func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "1", "true":
		return true, nil
	case "0", "false", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q: want true or false", text)
}

func parseList(text string) []string {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func parseMap(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, part := range parseList(text) {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: want key=value", part)
		}
		if _, double := m[key]; double {
			return nil, fmt.Errorf("the key %q is there twice", key)
		}
		m[key] = value
	}
	return m, nil
}

// Title returns the setting's flag and variable, for messages.
func (f Field) Title() string {
	switch {
	case f.Flag == "":
		return f.Env
	case f.Env == "":
		return "-" + f.Flag
	}
	return "-" + f.Flag + " (" + f.Env + ")"
}

func (f Field) bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", provider.ErrInvalidArgument, f.Title(), fmt.Sprintf(format, args...))
}

// flagUsage returns the usage text of the flag.
func (f Field) flagUsage() string {
	if f.Env == "" {
		return f.meaning()
	}
	return f.meaning() + " [" + f.Env + "]"
}
