// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/pflag"
)

// OwnFlags are the flags that other cloud controller managers do not have, each
// with its default and its meaning.
func OwnFlags() [][3]string {
	s, err := newSettings(func(string) string { return "" })
	if err != nil {
		panic(err) // it depends on nothing
	}
	var all [][3]string
	s.own.VisitAll(func(f *pflag.Flag) {
		value := f.DefValue
		if value == "[]" {
			value = ""
		}
		all = append(all, [3]string{f.Name, value, f.Usage})
	})
	return all
}
