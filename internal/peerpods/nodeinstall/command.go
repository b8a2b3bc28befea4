// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/config"
)

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// settings are what flags and environment say.
type settings struct {
	Installer
	Unit      string `flag:"unit" default:"containerd.service" usage:"systemd unit to restart; empty: none"`
	Bus       string `flag:"bus" default:"/run/dbus/system_bus_socket" usage:"socket of the system bus, below the root"`
	DaemonSet string `env:"DAEMONSET" usage:"for run: name of the DaemonSet whose removal ends it"`
	Namespace string `env:"POD_NAMESPACE" usage:"for run: namespace of that DaemonSet"`
	program.VersionFlag
}

// Settings returns the program's settings.
func Settings() *config.Settings { return config.Bind(new(settings)) }

// Commands returns the commands of the program, each with its meaning.
func Commands() [][2]string {
	return [][2]string{
		{"install", "copy the shim, add the handler, restart containerd if that is new"},
		{"uninstall", "take both away again"},
		{"check", "say what is missing"},
		{"run", "install and wait; at the end uninstall if the DaemonSet is removed"},
	}
}

func about() string {
	text := "node-installer brings " + shimName + " and its runtime handler to a\nnode with containerd 1.6 or later.\n\nUsage: node-installer COMMAND [flags]\n\n"
	for _, c := range Commands() {
		text += fmt.Sprintf("  %-9s  %s\n", c[0], c[1])
	}
	return text
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	var s settings
	var action string
	var rest []string
	p := program.Program{
		Name: "node-installer", About: about(), Settings: config.Bind(&s), Rest: &rest,
		Run: func(ctx context.Context) error {
			if err := s.check(rest); err != nil {
				return err
			}
			return c.do(ctx, action, &s)
		},
		Stdout: c.Stdout, Stderr: c.Stderr, Getenv: c.Getenv,
	}
	if len(args) == 0 {
		p.Help(c.Stderr)
		return program.ExitUsage
	}
	if !strings.HasPrefix(args[0], "-") {
		action, args = args[0], args[1:]
	}
	return p.Main(args)
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

func (c *Command) do(ctx context.Context, action string, s *settings) error {
	s.Log = slog.New(slog.NewTextHandler(c.Stderr, nil))
	if s.Unit != "" {
		s.Restart = func(ctx context.Context) error { return RestartUnit(ctx, s.path(s.Bus), s.Unit) }
	}
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
	of := s.owner(c.Getenv)
	if of == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	gone, err := of.removed(ctx)
	if err != nil || !gone {
		return err
	}
	s.Log.Info("the DaemonSet is removed, and so is what it installed")
	// A second signal would leave half of it. Ignored ones would stay so in programs that are started.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	return s.Uninstall(ctx)
}

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
