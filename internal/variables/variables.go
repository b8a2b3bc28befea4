// SPDX-License-Identifier: Apache-2.0

// Package variables has the settings of a provider by their variables: it reads files with
// them, and opens the provider.
package variables

import (
	"fmt"
	"os"
	"strings"
)

// Read reads lines VARIABLE=VALUE. Its errors never show a value.
func Read(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	variables := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("%s, line %d: want VARIABLE=VALUE", file, i+1)
		}
		if _, twice := variables[name]; twice {
			return nil, fmt.Errorf("%s, line %d: %s is given twice", file, i+1, name)
		}
		variables[name] = value
	}
	return variables, nil
}
