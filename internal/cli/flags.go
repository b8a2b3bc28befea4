// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strconv"
	"time"
)

// parsed is a flag whose text becomes something else.
type parsed[T any] struct {
	into *T
	with func(string) (T, error)
	text string
}

// parse returns a flag with a default, which may be empty.
func parse[T any](into *T, text string, with func(string) (T, error)) *parsed[T] {
	p := &parsed[T]{into: into, with: with}
	if text != "" {
		p.Set(text)
	}
	return p
}

func (p *parsed[T]) Set(text string) (err error) {
	p.text = text
	*p.into, err = p.with(text)
	return err
}

func (p *parsed[T]) String() string { return p.text }
func (p *parsed[T]) Type() string   { return "string" }

// each is a flag that may be given several times.
type each func(text string) error

func (e each) Set(text string) error { return e(text) }
func (each) String() string          { return "" }
func (each) Type() string            { return "stringArray" }

// list appends what each text becomes.
func list[T any](into *[]T, with func(string) (T, error)) each {
	return func(text string) error {
		value, err := with(text)
		*into = append(*into, value)
		return err
	}
}

// checked leaves a text as it is.
func checked[T any](check func(string) (T, error)) func(string) (string, error) {
	return func(text string) (string, error) {
		_, err := check(text)
		return text, err
	}
}

// parseSeconds reads a time as docker has it: a number of seconds, or a duration with its unit.
func parseSeconds(text string) (time.Duration, error) {
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	return time.ParseDuration(text)
}

// parseLimit reads how long something may take at most.
func parseLimit(text string) (time.Duration, error) {
	d, err := parseSeconds(text)
	if err == nil && d <= 0 {
		err = errors.New("want more than 0")
	}
	return d, err
}
