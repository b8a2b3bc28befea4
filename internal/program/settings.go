// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider/config"
)

// VersionFlag is a part of a program's settings.
type VersionFlag struct {
	Version bool `flag:"version" usage:"print the version"`
}

// Program is a program that has settings and runs until a signal.
type Program struct {
	Name string
	// About is the beginning of the help.
	About    string
	Settings *config.Settings
	// Check, if any, returns what is wrong with the settings and no tag can express.
	Check func() error
	Run   func(ctx context.Context) error
	// Rest, if any, gets the arguments after the flags. Without it there may be none.
	Rest *[]string

	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Main does what args (without the program's name) say and returns the exit code.
func (p *Program) Main(args []string) int {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	err := p.Load(flags, args)
	shows := flags.Lookup("version")
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.Help(p.Stdout)
		return ExitOK
	case shows != nil && shows.Value.String() == "true":
		fmt.Fprintln(p.Stdout, p.Name+" version "+version.String())
		return ExitOK
	case err == nil:
		err = UntilSignal(p.Run)
	}
	return Exit(p.Name, p.Stderr, err)
}

// Help writes what the program is for, and its settings.
func (p *Program) Help(w io.Writer) {
	fmt.Fprint(w, p.About)
	p.Settings.WriteHelp(w)
}

// Load fills the settings from the environment and from args, which win, and checks
// them. The error is that of package flag if help is wanted, or names all mistakes.
func (p *Program) Load(flags *flag.FlagSet, args []string) error {
	help := "-h"
	if p.Settings.Dash == "--" {
		help = "--help"
	}
	p.Settings.LoadEnv(p.Getenv)
	p.Settings.AddFlags(flags)
	flags.SetOutput(io.Discard) // errors are ours to print, once
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return Usagef("%w; all flags: %s %s", err, p.Name, help)
	}
	if p.Rest != nil {
		*p.Rest = flags.Args()
	} else if flags.NArg() > 0 {
		return Usagef("unexpected argument %q; all flags: %s %s", flags.Arg(0), p.Name, help)
	}
	err := p.Settings.Err()
	if p.Check != nil {
		err = errors.Join(err, p.Check())
	}
	return UsageError(err)
}
