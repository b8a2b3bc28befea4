// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Patterns are names of types, or patterns of [path.Match] such as m6a.*. As a
// field of a configuration struct its text has commas between them.
type Patterns []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Patterns) UnmarshalText(text []byte) error {
	var list Patterns
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	if err := list.check(); err != nil {
		return err
	}
	*p = list
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (p Patterns) MarshalText() ([]byte, error) { return []byte(strings.Join(p, ",")), nil }

func (p Patterns) check() error {
	for _, pattern := range p {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%w: pattern %q of instance types: %w; patterns have *, ? and [a-z]", provider.ErrInvalidArgument, pattern, err)
		}
	}
	return nil
}

func (p Patterns) match(name string) bool {
	return slices.ContainsFunc(p, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // check has refused what does not parse
		return ok || pattern == name
	})
}
