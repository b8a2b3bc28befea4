// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of cloud-api-adaptor.
package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin"
)

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Hook is for crash tests; see adaptor.Options.
	Hook func(adaptor.Point)
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	name, args := c.chooseProvider(args)
	switch name {
	case "version", "-version", "--version":
		fmt.Fprintln(c.Stdout, "cloud-api-adaptor version "+version.String())
		return program.ExitOK
	case "help", "-h", "-help", "--help":
		return c.help(args)
	case nodeIdentityCommand:
		return c.exitCode(c.nodeIdentity(args))
	case "":
		printHelp(c.Stderr, nil)
		return program.ExitError
	}
	return program.UntilSignal(func(ctx context.Context) int { return c.run(ctx, name, args) })
}

// run loads the provider and does what the rest of the arguments say.
func (c *Command) run(ctx context.Context, name string, args []string) int {
	log := c.logger(args)
	if !wantsHelp(args) {
		for _, warning := range upstream.Warnings(name, c.Getenv) {
			log.Warn(warning)
		}
	}
	renamed := *c
	renamed.Getenv = upstream.Getenv(name, c.Getenv)
	c = &renamed
	loaded, err := plugin.Load(ctx, plugin.Options{Name: name, Getenv: c.Getenv, Log: log})
	switch {
	case errors.Is(err, provider.ErrInvalidArgument):
		return c.exitCode(program.UsageError(err))
	case errors.Is(err, plugin.ErrUnsupported):
		defer printProviders(c.Stderr)
		return c.exitCode(err)
	case err != nil:
		return c.exitCode(err)
	}
	err = c.serve(ctx, loaded, args, log)
	return c.exitCode(errors.Join(err, loaded.Close()))
}

// chooseProvider takes the provider's name from the arguments, else from
// CLOUD_PROVIDER.
func (c *Command) chooseProvider(args []string) (string, []string) {
	fromEnv := provider.Canonical(c.Getenv("CLOUD_PROVIDER"))
	switch {
	case len(args) == 0:
		return fromEnv, nil
	case strings.HasPrefix(args[0], "-") && fromEnv != "" && !asksForHelp(args[0]):
		return fromEnv, args
	}
	return provider.Canonical(args[0]), args[1:]
}

func asksForHelp(arg string) bool {
	switch strings.TrimLeft(arg, "-") {
	case "h", "help", "version":
		return true
	}
	return false
}

func (c *Command) help(args []string) int {
	if len(args) == 1 && args[0] == "--markdown" {
		WriteMarkdown(c.Stdout)
		return program.ExitOK
	}
	if len(args) == 1 {
		return c.run(context.Background(), args[0], []string{"-h"})
	}
	printHelp(c.Stdout, nil)
	return program.ExitOK
}

func (c *Command) exitCode(err error) int { return program.Exit("cloud-api-adaptor", c.Stderr, err) }

// serve reads the configuration and runs the daemon until a signal comes.
func (c *Command) serve(ctx context.Context, loaded *plugin.Loaded, args []string, log *slog.Logger) error {
	name, cloud := loaded.Name, loaded.Cloud
	cfg, err := c.configure(name, cloud, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	d := &daemon{cfg: cfg, name: name, log: log, getenv: c.Getenv, hook: c.Hook}
	p, err := d.open(ctx, cloud)
	if errors.Is(err, provider.ErrInvalidArgument) {
		return program.Usagef("provider %s: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("provider %s: %w", name, err)
	}
	d.provider = p
	return errors.Join(d.run(ctx), provider.Teardown(ctx, p))
}

func (c *Command) configure(name string, cloud provider.CloudProvider, args []string) (*settings, error) {
	cfg := new(settings)
	cfg.NodeName, _ = os.Hostname()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	cloud.ParseCmd(flags)
	p := program.Program{Name: "cloud-api-adaptor " + name, Settings: cfg.bind(), Getenv: c.Getenv}
	for f := range cfg.all.All() { // ibmcloud has a -cluster-id of its own, with the same meaning
		if f.Flag != "" && f.Flag != "cluster-id" && flags.Lookup(f.Flag) != nil {
			return nil, fmt.Errorf("the provider defines the flag -%s, which is the adaptor's", f.Flag)
		}
	}
	if err := p.Load(flags, args); errors.Is(err, flag.ErrHelp) {
		printHelp(c.Stdout, &chosen{name, cloud, flags})
		return nil, err
	} else if err != nil {
		return nil, err
	}
	cfg.providerFlag = func(name string) string {
		if f := flags.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	cfg.ClusterID = cmp.Or(cfg.providerFlag("cluster-id"), cfg.ClusterID)
	cfg.finish(c.Getenv)
	return cfg, nil
}

func wantsHelp(args []string) bool {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") && asksForHelp(arg) {
			return true
		}
	}
	return false
}

// lookAhead returns the value of a flag before the flags are parsed: a plugin
// must be loaded, and may log, before it is known which flags there are.
func lookAhead(args []string, name, def string) string {
	value := def
	for i, arg := range args {
		given, hasValue := strings.CutPrefix(strings.TrimLeft(arg, "-"), name)
		switch {
		case !strings.HasPrefix(arg, "-") || !hasValue:
		case strings.HasPrefix(given, "="):
			value = given[1:]
		case given == "" && i+1 < len(args):
			value = args[i+1]
		}
	}
	return value
}

// logger falls back to the default for values that it does not know: flags are
// validated when they are parsed.
func (c *Command) logger(args []string) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(lookAhead(args, "log-level", "info"))) != nil {
		level = slog.LevelInfo
	}
	if wantsHelp(args) {
		level = slog.LevelWarn
	}
	opts := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(c.Stderr, opts)
	if lookAhead(args, "log-format", "text") == "json" {
		handler = slog.NewJSONHandler(c.Stderr, opts)
	}
	log := slog.New(handler)
	slog.SetDefault(log)
	return log
}
