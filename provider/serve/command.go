// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// command is what the arguments say.
type command struct {
	Options
	flags *flag.FlagSet
	// settings are read before the flags are bound: a manager without package config
	// forgets its flags when ParseCmd is called again.
	settings config.Schema

	listen, only, junit          string
	check, schema, version, help bool
	image                        provider.ImageSource
}

// mode is a flag of ours.
type mode struct {
	name, argument, usage string
	text                  *string
	set                   *bool
}

func (c *command) modes() []mode {
	return []mode{
		{"listen", "unix:///PATH", "serve on a socket, configured by the flags and variables below", &c.listen, nil},
		{"check", "", "prove the provider against the contract; it makes instances and deletes them", nil, &c.check},
		{"run", "REGEXP", "with --check: only the checks whose names match", &c.only, nil},
		{"junit", "FILE", "with --check: write a JUnit report too", &c.junit, nil},
		{"import", "LOCATION", "make an image of the cloud from a file, or from an object where the cloud's own store has it; its id goes to standard output", &c.image.Location, nil},
		{"import-name", "NAME", "with --import: what the cloud shall call the image", &c.image.Name, nil},
		{"import-format", "FORMAT", "with --import: qcow2, raw, vhd, gcp or ova, when the location's ending does not tell", &c.image.Format, nil},
		{"import-arch", "ARCH", "with --import: amd64 (the default), arm64 or s390x", &c.image.Arch, nil},
		{"schema", "", "write the configuration schema as JSON", nil, &c.schema},
		{"version", "", "write the version", nil, &c.version},
		{"help", "", "write this text", nil, &c.help},
	}
}

// parse reads the arguments, and for the modes that need it the environment.
func (o Options) parse() (*command, error) {
	c := &command{Options: o, settings: wire.SchemaOf(o.Name, o.Cloud), flags: flag.NewFlagSet(o.Name, flag.ContinueOnError)}
	c.flags.SetOutput(io.Discard)
	c.Cloud.ParseCmd(c.flags)
	for _, m := range c.modes() {
		if c.flags.Lookup(m.name) != nil {
			return nil, fmt.Errorf("the provider has a flag -%s, which package serve needs: its author must give it another name", m.name)
		}
		if m.set != nil {
			c.flags.BoolVar(m.set, m.name, false, m.usage)
		} else {
			c.flags.StringVar(m.text, m.name, "", m.usage)
		}
	}
	err := c.flags.Parse(o.Args)
	switch {
	case errors.Is(err, flag.ErrHelp): // -h
		c.help = true
		return c, nil
	case err != nil:
		return nil, err
	}
	return c, c.validate()
}

func (c *command) validate() error {
	var chosen []string
	c.flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "listen", "check", "import", "schema", "version", "help":
			chosen = append(chosen, "--"+f.Name)
		}
	})
	_, err := regexp.Compile(c.only)
	switch {
	case c.flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: settings are flags, such as -name=value", c.flags.Arg(0))
	case len(chosen) > 1:
		return fmt.Errorf("%s exclude each other", strings.Join(chosen, " and "))
	case len(chosen) == 1 && chosen[0] == "--listen" && c.listen == "":
		return errors.New("--listen is empty: give it a socket, such as unix:///run/peerpod/provider.sock")
	case (c.only != "" || c.junit != "") && !c.check:
		return errors.New("--run and --junit go with --check")
	case err != nil:
		return fmt.Errorf("--run: %w", err)
	}
	if err := c.validateImage(slices.Contains(chosen, "--import")); err != nil {
		return err
	}
	if c.check || c.listen != "" || c.image.Location != "" {
		c.Cloud.LoadEnv()
	}
	return nil
}

func (c *command) versionLine() string {
	return fmt.Sprintf("%s %s (provider contract %d, %s, %s/%s)", c.Name, c.Version, wire.ContractVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// sentence returns what to tell a user who runs a plugin by hand.
func (c *command) sentence() string {
	return fmt.Sprintf("%s is a cloud provider that cloud-api-adaptor starts when CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH names this file; run by hand it needs one of the modes below.", c.Name)
}

func (c *command) usage() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "Usage: %s MODE [SETTINGS]\n\nModes:\n", c.Name)
	for _, m := range c.modes() {
		fmt.Fprintf(table, "  %s\t%s\n", strings.TrimSpace("--"+m.name+" "+m.argument), m.usage)
	}
	table.Flush()
	if len(c.settings.Fields) > 0 {
		text.WriteString("\nSettings:\n")
		c.settings.WriteHelp(&text)
	}
	return text.String()
}
