// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of cloud-api-adaptor.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/program"
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
		printHelp(c.Stderr, new(config).settings(), nil)
		return program.ExitError
	}
	return c.run(name, args)
}

// run loads the provider and does what the rest of the arguments say.
func (c *Command) run(name string, args []string) int {
	log := c.logger(args)
	ctx, cancel := signalContext()
	defer cancel()
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
		return c.run(args[0], []string{"-h"})
	}
	printHelp(c.Stdout, new(config).settings(), nil)
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

func (c *Command) configure(name string, cloud provider.CloudProvider, args []string) (*config, error) {
	cfg := new(config)
	settings := cfg.settings()
	cfg.all = settings
	fs := flag.NewFlagSet("cloud-api-adaptor "+name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are ours to print, once
	cloud.ParseCmd(fs)
	shared, err := register(fs, settings)
	if err != nil {
		return nil, err
	}
	fs.Usage = func() {}
	if err := loadEnv(settings, c.Getenv); err != nil && !wantsHelp(args) {
		return nil, err
	}
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		printHelp(c.Stdout, settings, &chosen{name, cloud, fs})
		return nil, err
	} else if err != nil {
		return nil, program.Usagef("%w; all flags: cloud-api-adaptor %s -h", err, name)
	}
	if fs.NArg() > 0 {
		return nil, program.Usagef("unexpected argument %q; all flags: cloud-api-adaptor %s -h", fs.Arg(0), name)
	}
	for _, s := range shared {
		if given := fs.Lookup(s.flag).Value.String(); given != "" {
			if err := s.value.Set(given); err != nil {
				return nil, program.Usagef("-%s %q: %v", s.flag, given, err)
			}
		}
	}
	cfg.providerFlag = func(name string) string {
		if f := fs.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
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

// signalContext ends with the first SIGINT or SIGTERM; a second one ends the
// process with status 1 at once.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(program.ExitError)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}
