// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the whole command line, for docs/reference.
func Command() *cobra.Command {
	return (&App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}).command()
}

// WriteCommand prints a command, its flags and its subcommands as Markdown.
func WriteCommand(w io.Writer, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Parent() != nil && cmd.Parent().Name() == "completion" {
		return
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.Example)
	}
	writeFlags(w, cmd.NonInheritedFlags())
	for _, sub := range cmd.Commands() {
		WriteCommand(w, sub)
	}
}

func writeFlags(w io.Writer, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprint(w, "\n| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := f.DefValue
		if def == "[]" {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
}
