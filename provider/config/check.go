// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"reflect"
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
