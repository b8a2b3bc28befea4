// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// About puts a setting of C, by its flag or variable, in front of an error, which keeps its class.
func About[C any](name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fieldNamed[C](name).Title(), err)
}
