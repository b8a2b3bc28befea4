// SPDX-License-Identifier: Apache-2.0

// Package jsonobject reads and writes configuration files that are a JSON
// object, without knowing what is in them: what is not asked for stays as it
// was written, numbers too. Whoever reads such a file takes keys in any case.
package jsonobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Object is a JSON object. Values are those of encoding/json, with numbers as
// [json.Number].
type Object map[string]any

// Parse reads an object. Errors name the line and show no value.
func Parse(source string) (Object, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("it is empty; a JSON object is expected")
	}
	d := json.NewDecoder(strings.NewReader(source))
	d.UseNumber()
	var o Object
	if err := d.Decode(&o); err != nil {
		return nil, locate(source, err)
	}
	if o == nil {
		return nil, errors.New("line 1: it is null; a JSON object is expected")
	}
	if _, err := d.Token(); err == nil || d.More() {
		return nil, fmt.Errorf("line %d: there is more after the JSON object", lineAt(source, d.InputOffset()))
	}
	return o, nil
}

func locate(source string, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", lineAt(source, syntax.Offset), err)
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("line %d: it is a JSON %s; a JSON object is expected", lineAt(source, kind.Offset), kind.Value)
	}
	return fmt.Errorf("line %d: %w", lineAt(source, int64(len(source))), err)
}

func lineAt(source string, offset int64) int {
	return 1 + strings.Count(source[:min(int(offset), len(source))], "\n")
}

// Get returns a key's value. The key gets the case that is asked for; one that
// stands in two is an error.
func (o Object) Get(key string) (any, error) {
	for k, v := range o {
		if k == key || !strings.EqualFold(k, key) {
			continue
		}
		if _, twice := o[key]; twice {
			return nil, fmt.Errorf("invalid cloud.conf: keys %q and %q are the same to the cloud provider; remove one", k, key)
		}
		delete(o, k)
		o[key] = v
	}
	return o[key], nil
}

// Text returns a key's text; one that is missing or null is empty.
func (o Object) Text(key string) (string, error) {
	value, err := o.Get(key)
	if err != nil || value == nil {
		return "", err
	}
	if text, ok := value.(string); ok {
		return text, nil
	}
	return "", fmt.Errorf("invalid cloud.conf: key %q: a string is expected", key)
}

// Default sets a key that has no text.
func (o Object) Default(key, value string) error {
	given, err := o.Text(key)
	if given == "" {
		o[key] = value
	}
	return err
}

// Set sets a key, whatever case it was in.
func (o Object) Set(key string, value any) {
	for k := range o {
		if strings.EqualFold(k, key) {
			delete(o, k)
		}
	}
	o[key] = value
}

// Write returns the object as JSON, with its keys in order.
func (o Object) Write() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return strings.TrimSuffix(b.String(), "\n"), err
}
