// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of capi-manager.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/webhooks"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	s := newSettings(c.Getenv)
	err := s.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		s.help(c.Stdout)
		return program.ExitOK
	case err == nil && s.version:
		fmt.Fprintln(c.Stdout, "capi-manager version "+version.String())
		return program.ExitOK
	case err == nil:
		err = program.UntilSignal(func(ctx context.Context) error { return c.run(ctx, s) })
	}
	return program.Exit("capi-manager", c.Stderr, err)
}

func (c *Command) run(ctx context.Context, s *settings) error {
	logger := s.log.Install(c.Stderr)
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("find the management cluster: %w: run in a pod with a service account, or set --kubeconfig or KUBECONFIG", err)
	}
	cluster.UserAgent = "capi-manager/" + version.Version
	cluster.QPS, cluster.Burst = float32(s.qps), s.burst
	return c.serve(ctx, s, cluster, logger)
}

func (c *Command) serve(ctx context.Context, s *settings, cluster *rest.Config, logger *slog.Logger) error {
	mgr, err := manager.New(cluster, s.managerOptions(logger))
	if err != nil {
		return fmt.Errorf("reach the management cluster at %s: %w", cluster.Host, err)
	}
	if err := checkKinds(mgr.GetRESTMapper()); err != nil {
		return err
	}
	closeKinds, err := addKinds(ctx, mgr, s, logger)
	if err != nil {
		return errors.Join(err, closeKinds())
	}
	if err := addChecks(mgr, s); err != nil {
		return errors.Join(err, closeKinds())
	}
	logger.Info("starting", "version", version.String(), "providers", s.names(), "namespace", s.namespace, "watch-filter", s.watchFilter, "leader-elect", s.leaderElect)
	return errors.Join(mgr.Start(ctx), closeKinds())
}

// addChecks adds webhooks and health checks.
func addChecks(mgr manager.Manager, s *settings) error {
	ready := healthz.Ping
	if s.webhookPort != 0 {
		if err := webhooks.SetupWithManager(mgr); err != nil {
			return err
		}
		ready = mgr.GetWebhookServer().StartedChecker()
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("started", ready))
}

// checkKinds returns an error that names the kinds that are not installed.
// Waiting for them silently would look like a manager that works.
func checkKinds(mapper apimeta.RESTMapper) error {
	for _, kind := range []string{"Cluster", "Machine"} {
		if _, err := mapper.RESTMapping(clusterv1.GroupVersion.WithKind(kind).GroupKind(), clusterv1.GroupVersion.Version); err != nil {
			return fmt.Errorf("find %s %s in the management cluster: %w: install Cluster API 1.11 or later first, such as with clusterctl init", clusterv1.GroupVersion, kind, err)
		}
	}
	for _, kind := range []string{"DockerCluster", "DockerMachine", "OutriggerCluster", "OutriggerMachine"} {
		if _, err := mapper.RESTMapping(infrav1.GroupVersion.WithKind(kind).GroupKind(), infrav1.GroupVersion.Version); err != nil {
			return fmt.Errorf("find %s %s in the management cluster: %w: install this provider's custom resources (config/crd) first", infrav1.GroupVersion, kind, err)
		}
	}
	return nil
}

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
