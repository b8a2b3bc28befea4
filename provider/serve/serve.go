// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Options are for [Run].
type Options struct {
	// Name is the provider's, such as mycloud.
	Name string
	// Version is for humans; the version of the main module by default.
	Version string
	// Cloud is the provider's manager. config.New makes one; with any other,
	// a process plugin can have but one configuration, its flags are all that
	// its host knows of, and variables that only LoadEnv reads cannot be set.
	Cloud provider.CloudProvider
	// Subject, if any, completes what --check runs on: the spec and tags of
	// its instances, and whether the cloud is slow.
	Subject func(*conformance.Subject)

	// Args are the arguments without the program's name; those of the process
	// by default.
	Args []string
	// Stdin, Stdout and Stderr are those of the process by default.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// Main runs a provider. It does not return.
func Main(name string, cloud provider.CloudProvider) {
	os.Exit(Run(Options{Name: name, Cloud: cloud}))
}

// Run is Main with options and returns the exit code.
func Run(o Options) int {
	o.complete()
	c, err := o.parse()
	if err != nil {
		fmt.Fprintf(o.Stderr, "%s: %v\nSee %s --help.\n", o.Name, err, o.Name)
		return exitUsage
	}
	return c.run()
}

func (o *Options) complete() {
	if o.Args == nil {
		o.Args = os.Args[1:]
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		o.Version = cmp.Or(o.Version, info.Main.Version)
	}
	o.Version = cmp.Or(o.Version, "(devel)")
}

// run does what the arguments ask for.
func (c *command) run() int {
	socket := os.Getenv(SocketVariable)
	os.Unsetenv(SocketVariable) // not for what the provider starts
	switch {
	case c.help:
		fmt.Fprintf(c.Stdout, "%s\n\n%s", c.sentence(), c.usage())
	case c.version:
		fmt.Fprintln(c.Stdout, c.versionLine())
	case c.schema:
		c.Stdout.Write(c.settings.MarshalIndent())
	case c.check:
		return c.exit(c.runCheck())
	case c.image.Location != "":
		return c.exit(c.importImage())
	case c.listen != "":
		return c.exit(c.serveSocket())
	case socket != "" && c.flags.NFlag() > 0:
		return c.exit(usagef("with %s set the host configures the provider: start it without flags", SocketVariable))
	case socket != "":
		return c.exit(c.servePlugin(socket))
	default:
		fmt.Fprintf(c.Stderr, "%s\n\n%s", c.sentence(), c.usage())
		return exitUsage
	}
	return exitOK
}

// usageError is what the person at the keyboard can put right.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errFailed has been told already.
var errFailed = errors.New("failed")

func (c *command) exit(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailed
	}
	fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err)
	if wrong := (usageError{}); errors.As(err, &wrong) || errors.Is(err, provider.ErrInvalidArgument) {
		return exitUsage
	}
	return exitFailed
}

// serveSocket serves the provider of our own flags and environment.
func (c *command) serveSocket() error {
	path, err := socketPath(c.listen)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.Stderr, nil))
	slog.SetDefault(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	listener, err := listen(path)
	if err != nil {
		return errors.Join(err, provider.Teardown(ctx, p))
	}
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	log.Info("Serving", "provider", c.Name, "version", c.Version, "socket", path)
	return serve(ctx, listener, wire.NewServer(c.wireOptions(p)), standardPatience)
}

// open makes the provider of our flags and environment.
func (c *command) open(ctx context.Context) (provider.Provider, error) {
	defer c.endWith(ctx)()
	return provider.Open(ctx, c.Cloud)
}

// endWith ends the program when ctx ends, until the function it returns is called: a
// provider that connects has made nothing, and not every NewProvider can be stopped.
func (c *command) endWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { os.Exit(c.exit(errors.New("stopped while the provider was connecting"))) })
}

func (c *command) wireOptions(p provider.Provider) wire.Options {
	return wire.Options{Name: c.Name, Version: c.Version, Cloud: c.Cloud, Schema: &c.settings, Configured: p}
}

// errOrphan is why a plugin ends whose host is gone.
var errOrphan = errors.New("the host has closed our stdin")

// servePlugin serves whatever the host configures.
func (c *command) servePlugin(path string) error {
	// The host drops what is below its own level.
	log := slog.New(slog.NewJSONHandler(c.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	slog.SetDefault(log)
	if err := checkPath(path); err != nil {
		return fmt.Errorf("%s: %w", SocketVariable, err)
	}
	defer ignore(os.Interrupt, syscall.SIGPIPE)()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, orphaned := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, c.Stdin)
		orphaned(errOrphan)
	}()
	listener, err := listen(path)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop)
	return serve(ctx, listener, wire.NewServer(c.wireOptions(nil)), standardPatience)
}

// ignore takes signals and does nothing. Control-C in a terminal goes to host
// and plugin alike, and the host still needs its plugin to tidy up; writing to
// a host that is gone must not kill us before our calls have ended. In
// contrast to signal.Ignore, what we start does not inherit it.
func ignore(signals ...os.Signal) (stop func()) {
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, signals...)
	return func() { signal.Stop(taken) }
}
