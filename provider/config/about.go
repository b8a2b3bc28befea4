// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"regexp"
)

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
