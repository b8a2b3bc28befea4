// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of cloud-controller-manager.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests to the API server
	"k8s.io/klog/v2"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

const name = "cloud-controller-manager"

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	s, err := c.settings(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		s.help(c.Stdout)
		return program.ExitOK
	case err == nil && s.version:
		fmt.Fprintln(c.Stdout, name+" version "+version.String())
		return program.ExitOK
	case err == nil:
		err = program.UntilSignal(func(ctx context.Context) error { return c.run(ctx, s) })
	}
	return program.Exit(name, c.Stderr, err)
}

func (c *Command) settings(args []string) (*settings, error) {
	s, err := newSettings()
	if err != nil {
		return nil, err
	}
	return s, s.parse(args, c.Getenv)
}

func (c *Command) run(ctx context.Context, s *settings) error {
	if err := logsapi.ValidateAndApply(s.logs, utilfeature.DefaultFeatureGate); err != nil {
		return program.UsageError(err)
	}
	defer logs.FlushLogs()
	cliflag.PrintFlags(s.flags)
	return c.serve(ctx, s, slog.New(logr.ToSlogHandler(klog.Background())))
}

func (c *Command) serve(ctx context.Context, s *settings, logger *slog.Logger) error {
	open, err := openCloud(ctx, s, c.Getenv, logger)
	if err != nil {
		return err
	}
	manager, err := newManager(s, open.cloud, logger)
	if err != nil {
		return errors.Join(err, open.close())
	}
	logger.Info("starting", "version", version.String(), "provider", open.cloud.ProviderName(), "controllers", s.options.Generic.Controllers)
	return errors.Join(manager.run(ctx), open.close())
}

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
