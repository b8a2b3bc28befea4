// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// FlagOption says more of a flag.
type FlagOption func(*setting)

// Required has NewProvider fail without the flag and its variable.
func Required() FlagOption { return func(s *setting) { s.required = true } }

// Secret keeps the value out of help, logs and errors.
func Secret() FlagOption { return func(s *setting) { s.secret = true } }

// FlagRegistrar registers flags that have variables of the environment. A flag wins over
// its variable, which wins over the default.
type FlagRegistrar struct{ flags *flag.FlagSet }

// NewFlagRegistrar returns one for the flags.
func NewFlagRegistrar(flags *flag.FlagSet) *FlagRegistrar { return &FlagRegistrar{flags} }

// StringWithEnv registers a text.
func (r *FlagRegistrar) StringWithEnv(field *string, name, def, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.StringVar(field, name, def, usage) })
}

// IntWithEnv registers a number.
func (r *FlagRegistrar) IntWithEnv(field *int, name string, def int, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.IntVar(field, name, def, usage) })
}

// UintWithEnv registers a number that is not negative.
func (r *FlagRegistrar) UintWithEnv(field *uint, name string, def uint, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.UintVar(field, name, def, usage) })
}

// Uint64WithEnv registers a number that is not negative.
func (r *FlagRegistrar) Uint64WithEnv(field *uint64, name string, def uint64, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.Uint64Var(field, name, def, usage) })
}

// Float64WithEnv registers a number with a fraction.
func (r *FlagRegistrar) Float64WithEnv(field *float64, name string, def float64, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.Float64Var(field, name, def, usage) })
}

// BoolWithEnv registers a switch.
func (r *FlagRegistrar) BoolWithEnv(field *bool, name string, def bool, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.BoolVar(field, name, def, usage) })
}

// DurationWithEnv registers a time span such as 5m.
func (r *FlagRegistrar) DurationWithEnv(field *time.Duration, name string, def time.Duration, env, usage string, opts ...FlagOption) {
	r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.DurationVar(field, name, def, usage) })
}

// CustomTypeWithEnv registers a value that reads itself.
func (r *FlagRegistrar) CustomTypeWithEnv(field flag.Value, name, def, env, usage string, opts ...FlagOption) {
	var wrong error
	if def != "" && os.Getenv(env) == "" {
		wrong = field.Set(def)
	}
	s := r.add(name, env, usage, opts, func(fs *flag.FlagSet) { fs.Var(field, name, usage) })
	if s.wrong == nil {
		s.wrong = wrong
	}
}

// add has package flag make the value of a field, by register.
func (r *FlagRegistrar) add(name, env, usage string, opts []FlagOption, register func(*flag.FlagSet)) *setting {
	one := flag.NewFlagSet(name, flag.ContinueOnError)
	register(one)
	s := &setting{Value: one.Lookup(name).Value, flag: name, env: env}
	for _, option := range opts {
		option(s)
	}
	if text := s.fromEnv(); text != "" {
		s.wrong = s.Set(text)
	}
	r.flags.Var(s, name, usage)
	return s
}

// setting is a flag with its variable.
type setting struct {
	flag.Value
	flag, env        string
	required, secret bool
	// wrong is why what the variable has cannot be read.
	wrong error
}

// fromEnv returns the variable. Switches are written in any case.
func (s *setting) fromEnv() string {
	if s.env == "" {
		return ""
	}
	text := os.Getenv(s.env)
	if s.IsBoolFlag() {
		return strings.ToLower(text)
	}
	return text
}

// Set implements [flag.Value]: a flag takes the place of a variable that is wrong.
func (s *setting) Set(text string) error {
	err := s.Value.Set(text)
	if err == nil {
		s.wrong = nil
	}
	return err
}

// String implements [flag.Value]. Package flag calls it on a zero value too.
func (s *setting) String() string {
	if s == nil || s.Value == nil || s.secret {
		return ""
	}
	return s.Value.String()
}

// IsBoolFlag lets a switch be given without a value.
func (s *setting) IsBoolFlag() bool {
	b, ok := s.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// Get implements [flag.Getter] where the value does.
func (s *setting) Get() any {
	if getter, ok := s.Value.(flag.Getter); ok {
		return getter.Get()
	}
	return s.Value.String()
}

// Variable tells the host of a plugin what package flag has no place for.
func (s *setting) Variable() (env string, required, secret bool) { return s.env, s.required, s.secret }

func (s *setting) check() error {
	name := "-" + s.flag
	if s.env != "" {
		name += " (" + s.env + ")"
	}
	switch {
	case s.wrong != nil && s.secret:
		return fmt.Errorf("%w: %s: the value does not parse", provider.ErrInvalidArgument, name)
	case s.wrong != nil:
		return fmt.Errorf("%w: %s: %s: %w", provider.ErrInvalidArgument, name, strconv.Quote(os.Getenv(s.env)), s.wrong)
	case s.required && s.Value.String() == "":
		return fmt.Errorf("%w: %s: it is required and not set", provider.ErrInvalidArgument, name)
	}
	return nil
}
