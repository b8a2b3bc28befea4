// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
)

// Check returns what in the configuration struct c breaks its tags: choices,
// bounds, required. It is for configurations that no manager has made.
func Check[C any](c C) error {
	var errs []error
	for _, m := range mustMembers(&c) {
		if err := m.check(); err != nil {
			errs = append(errs, m.bad("%v", err))
		}
	}
	return errors.Join(errs...)
}

// errMissing is what is wrong with a required setting.
var errMissing = errors.New("it is required and not set")

// missing names the required settings that the struct behind ptr lacks.
func missing(ptr any) error {
	var errs []error
	for _, m := range mustMembers(ptr) {
		if m.Required && m.value.IsZero() {
			errs = append(errs, m.bad("%v", errMissing))
		}
	}
	return errors.Join(errs...)
}

func (m member) check() error {
	switch {
	case m.Required && m.value.IsZero():
		return errMissing
	case m.Type == Int:
		return m.Check(fmt.Sprint(m.value.Int()))
	case m.Type == String && m.value.Kind() == reflect.String && len(m.Choices) > 0:
		return m.Check(m.value.String())
	}
	return nil
}

// Wrong returns the error for a setting of C, by its flag or variable, that breaks a
// rule no tag can express. It is [provider.ErrInvalidArgument] and names flag and
// variable.
func Wrong[C any](name, format string, args ...any) error {
	return fieldNamed[C](name).bad(format, args...)
}

// fieldNamed returns a setting of C, by its flag or variable.
func fieldNamed[C any](name string) Field {
	members := mustMembers(new(C))
	i := slices.IndexFunc(members, func(m member) bool { return m.Name == name || m.Env == name })
	if i < 0 {
		panic("no setting " + name)
	}
	return members[i].Field
}

// About puts a setting of C, by its flag or variable, in front of an error, which keeps its class.
func About[C any](name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fieldNamed[C](name).Title(), err)
}

// Match returns an error for each value of a setting of C that is not as syntax says, and nil if all are. What they
// have to be is what; empty ones are not set.
func Match[C any](name string, syntax *regexp.Regexp, what string, values ...string) error {
	var errs []error
	for _, value := range values {
		if value != "" && !syntax.MatchString(value) {
			errs = append(errs, Wrong[C](name, "%.200q is not %s", value, what))
		}
	}
	return errors.Join(errs...)
}
