// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/outrigger/outrigger/internal/version"
)

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// settings are what flags say.
type settings struct {
	Installer
	unit, bus string
	version   bool
}

// Commands returns the commands of the program, each with its meaning.
func Commands() [][2]string {
	return [][2]string{
		{"install", "copy the shim, add the handler, restart containerd if that is new"},
		{"uninstall", "take both away again"},
		{"check", "say what is missing"},
		{"run", "install and wait; at the end uninstall if the DaemonSet is removed"},
	}
}

func usage(w io.Writer) {
	fmt.Fprint(w, "node-installer brings "+shimName+" and its runtime handler to a\nnode with containerd 1.6 or later.\n\nUsage: node-installer COMMAND [flags]\n\n")
	for _, c := range Commands() {
		fmt.Fprintf(w, "  %-9s  %s\n", c[0], c[1])
	}
	fmt.Fprint(w, "\nFlags:\n")
}

// Flags returns the program's flags.
func Flags() *flag.FlagSet { return new(settings).flags(io.Discard) }

// Variables returns the environment variables of the program, each with its meaning.
func Variables() [][2]string {
	return [][2]string{
		{"DAEMONSET", "for run: name of the DaemonSet whose removal ends it"},
		{"POD_NAMESPACE", "for run: namespace of that DaemonSet"},
	}
}

func (s *settings) flags(w io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("node-installer", flag.ContinueOnError)
	fs.SetOutput(w)
	fs.StringVar(&s.Root, "root", "/", "`FOLDER` where the node's file system is")
	fs.StringVar(&s.Handler, "handler", "kata-remote", "`NAME` of the handler, as the RuntimeClass has it")
	fs.StringVar(&s.Config, "config", "/etc/containerd/config.toml", "containerd's configuration `FILE`")
	fs.StringVar(&s.Bin, "bin", "/usr/local/bin", "`FOLDER` for the shim")
	fs.StringVar(&s.ShimConfig, "shim-config", "", "the shim's own configuration `FILE` on the node; empty: its default")
	fs.StringVar(&s.Shim, "shim", "/usr/local/bin/"+shimName, "`FILE` to install as the shim") // the images have it there
	fs.StringVar(&s.unit, "unit", "containerd.service", "systemd `UNIT` to restart; empty: none")
	fs.StringVar(&s.bus, "bus", "/run/dbus/system_bus_socket", "`SOCKET` of the system bus, below the root")
	fs.BoolVar(&s.version, "version", false, "print the version")
	fs.Usage = func() {
		usage(w)
		fs.PrintDefaults()
	}
	return fs
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	var s settings
	fs := s.flags(c.Stderr)
	if len(args) == 0 {
		fs.Usage()
		return 2
	}
	action := args[0]
	if action[:min(1, len(action))] != "-" {
		args = args[1:]
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case s.version:
		fmt.Fprintln(c.Stdout, "node-installer version "+version.String())
		return 0
	}
	if err = s.check(fs.Args()); err == nil {
		err = c.do(action, &s)
	}
	if err != nil {
		fmt.Fprintln(c.Stderr, "node-installer:", err)
		return 1
	}
	return 0
}

var handlerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func (s *settings) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	if !handlerName.MatchString(s.Handler) {
		return fmt.Errorf("-handler %q: want lower-case letters, digits and hyphens", s.Handler)
	}
	for name, path := range map[string]string{"root": s.Root, "config": s.Config, "bin": s.Bin} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("-%s %q: want an absolute path", name, path)
		}
	}
	s.Config, s.Bin = filepath.Clean(s.Config), filepath.Clean(s.Bin)
	return nil
}

func (c *Command) do(action string, s *settings) error {
	s.Log = slog.New(slog.NewTextHandler(c.Stderr, nil))
	if s.unit != "" {
		s.Restart = func(ctx context.Context) error { return RestartUnit(ctx, s.path(s.bus), s.unit) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch action {
	case "install":
		return s.Install(ctx)
	case "uninstall":
		return s.Uninstall(ctx)
	case "check":
		return s.Check()
	case "run":
		return c.keep(ctx, s)
	}
	return fmt.Errorf("there is no command %q: see node-installer -help", action)
}

// keep installs and waits for the signal.
func (c *Command) keep(ctx context.Context, s *settings) error {
	if err := s.Install(ctx); err != nil {
		return err
	}
	s.Log.Info("the node has the handler", "handler", s.Handler)
	<-ctx.Done()
	of := ownerFromEnv(c.Getenv)
	if of == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	gone, err := of.removed(ctx)
	if err != nil || !gone {
		return err
	}
	s.Log.Info("the DaemonSet is removed, and so is what it installed")
	return s.Uninstall(ctx)
}

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
