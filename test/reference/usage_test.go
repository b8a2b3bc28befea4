// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestUsagesOfFlags: pflag takes a back-quoted word of a usage for the name of the flag's value, and a terminal shows no Markdown.
func TestUsagesOfFlags(t *testing.T) {
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		check := func(f *pflag.Flag) {
			seen++
			value, usage := pflag.UnquoteUsage(f)
			if strings.ContainsAny(value, " \t*") || strings.Contains(usage, "**") || strings.Contains(usage, "`") {
				t.Errorf("%s --%s %s: %s", cmd.CommandPath(), f.Name, value, usage)
			}
			if f.Value.Type() == "bool" && value != "" {
				t.Errorf("%s --%s has a name %q of a value that it does not take", cmd.CommandPath(), f.Name, value)
			}
		}
		cmd.LocalFlags().VisitAll(check)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	for _, cmd := range commands() {
		walk(cmd)
	}
	if seen < 200 {
		t.Errorf("only %d flags were seen", seen)
	}
}
