// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// member is a setting that is a field of a struct.
type member struct {
	Field
	tag   reflect.StructTag
	value reflect.Value
}

// membersOf returns the settings of the struct that ptr points to.
func membersOf(ptr any) ([]member, error) {
	value := reflect.ValueOf(ptr).Elem()
	if value.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct", value.Type())
	}
	var all []member
	for _, f := range fieldsIn(value.Type()) {
		if !tagged(f) {
			continue
		}
		field, err := fieldOf(f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name, err)
		}
		for _, other := range all {
			if field.Flag != "" && field.Flag == other.Flag || field.Env != "" && field.Env == other.Env {
				return nil, fmt.Errorf("field %s: %s is taken", f.Name, field.Title())
			}
		}
		all = append(all, member{field, f.Tag, value.FieldByIndex(f.Index)})
	}
	return all, nil
}

// fieldsIn returns the fields of a struct and of those that it embeds, also fields that Go
// hides by others of the same name: their settings would be lost without a word.
func fieldsIn(t reflect.Type) (all []reflect.StructField) {
	for f := range t.Fields() {
		if !f.Anonymous || f.Type.Kind() != reflect.Struct {
			all = append(all, f)
			continue
		}
		for _, inner := range fieldsIn(f.Type) {
			inner.Index = append(slices.Clone(f.Index), inner.Index...)
			all = append(all, inner)
		}
	}
	return all
}

// mustMembers is membersOf for tags that are right, which tests see to.
func mustMembers(ptr any) []member {
	all, err := membersOf(ptr)
	if err != nil {
		panic(err)
	}
	return all
}

// tagged reports whether the field of a struct is a setting.
func tagged(member reflect.StructField) bool {
	return member.Tag.Get("flag") != "" || member.Tag.Get("env") != ""
}

func fieldOf(member reflect.StructField) (Field, error) {
	tag := member.Tag
	f := Field{Flag: tag.Get("flag"), Env: tag.Get("env"), Unit: tag.Get("unit"), Default: tag.Get("default"), Usage: tag.Get("usage")}
	f.Name = cmp.Or(f.Flag, f.Env)
	f.Choices, f.Labels = parseList(tag.Get("choices")), parseList(tag.Get("label"))
	f.Secret = tag.Get("secret") == "true" || member.Type == reflect.TypeFor[Secret]()
	f.Required = tag.Get("required") == "true"
	var err error
	f.Type, err = typeOf(member.Type)
	if err != nil {
		return f, err
	}
	if f.Min, err = f.bound(tag.Get("min")); err != nil {
		return f, err
	}
	if f.Max, err = f.bound(tag.Get("max")); err != nil {
		return f, err
	}
	switch {
	case !member.IsExported():
		return f, errors.New("it is not exported")
	case f.Usage == "":
		return f, errors.New("the tag usage is missing")
	case f.Default != "" && f.Check(f.Default) != nil:
		return f, fmt.Errorf("default: %w", f.Check(f.Default))
	}
	return f, nil
}

func (f Field) bound(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	if f.Type == Duration {
		d, err := time.ParseDuration(text)
		return (*int64)(&d), err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return &n, err
}

func typeOf(t reflect.Type) (Type, error) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return Duration, nil
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return String, nil
	case t == reflect.TypeFor[[]string]():
		return List, nil
	case t == reflect.TypeFor[map[string]string]():
		return Map, nil
	}
	switch t.Kind() {
	case reflect.String:
		return String, nil
	case reflect.Bool:
		return Bool, nil
	case reflect.Int, reflect.Int64:
		return Int, nil
	}
	return "", fmt.Errorf("a setting cannot be a %s", t)
}

// decode fills the struct that ptr points to with values and defaults. Its error names
// every setting that is wrong.
func decode(ptr any, values Values) error {
	var errs []error
	for _, m := range mustMembers(ptr) {
		text := cmp.Or(values[m.Name], m.Default)
		if text == "" {
			continue
		}
		if err := setField(m.value, text); err != nil {
			if m.Secret {
				err = errors.New("the value does not parse")
			}
			errs = append(errs, m.bad("%v", err))
		}
	}
	return errors.Join(errs...)
}

func setField(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch target := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		*target = d
		return err
	case *[]string:
		*target = parseList(text)
		return nil
	case *map[string]string:
		m, err := parseMap(text)
		*target = m
		return err
	}
	return setScalar(v, text)
}

func setScalar(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.TrimSpace(text))
	case reflect.Bool:
		b, err := parseBool(text)
		v.SetBool(b)
		return err
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err
	}
	return nil
}
