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
	value := reflect.ValueOf(&c).Elem()
	var errs []error
	for _, member := range reflect.VisibleFields(value.Type()) {
		if member.Anonymous || !tagged(member) {
			continue
		}
		field, err := fieldOf(member)
		if err != nil {
			panic(err)
		}
		if err := field.checkValue(value.FieldByIndex(member.Index)); err != nil {
			errs = append(errs, field.bad("%v", err))
		}
	}
	return errors.Join(errs...)
}

// missing names the required settings that the struct behind ptr lacks.
func missing(ptr any) error {
	value := reflect.ValueOf(ptr).Elem()
	var errs []error
	for _, member := range reflect.VisibleFields(value.Type()) {
		if member.Tag.Get("required") != "true" || !value.FieldByIndex(member.Index).IsZero() {
			continue
		}
		field, err := fieldOf(member)
		if err != nil {
			panic(err)
		}
		errs = append(errs, field.bad("it is required and not set"))
	}
	return errors.Join(errs...)
}

func (f Field) checkValue(v reflect.Value) error {
	switch {
	case f.Required && v.IsZero():
		return errors.New("it is required and not set")
	case f.Type == Int:
		return f.Check(fmt.Sprint(v.Int()))
	case f.Type == String && v.Kind() == reflect.String && len(f.Choices) > 0:
		return f.Check(v.String())
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
	var c C
	fields, err := fieldsOf(&c)
	if err != nil {
		panic(err)
	}
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name || f.Env == name })
	if i < 0 {
		panic("no setting " + name)
	}
	return fields[i]
}
