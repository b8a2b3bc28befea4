// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of peerpod-ctrl.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// leaseName is that of earlier versions, so that old and new never act at the
// same time during an upgrade.
const leaseName = "33f6c5d6.confidentialcontainers.org"

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Options are what flags and environment do not say; they fill in the rest.
	Options controller.Options
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	s := newSettings()
	err := s.parse(args, c.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		s.help(c.Stdout)
		return program.ExitOK
	case err == nil && s.version:
		fmt.Fprintln(c.Stdout, "peerpod-ctrl version "+version.String())
		return program.ExitOK
	case err == nil:
		err = program.UntilSignal(func(ctx context.Context) error { return c.run(ctx, s) })
	}
	return program.Exit("peerpod-ctrl", c.Stderr, err)
}

func (c *Command) run(ctx context.Context, s *settings) error {
	logger := s.log.Install(c.Stderr)
	cluster, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w: run in a pod with a service account, or set -kubeconfig or KUBECONFIG", err)
	}
	cluster.UserAgent = "peerpod-ctrl/" + version.Version
	// Priority and fairness in the API server bound the rate, not this process.
	cluster.QPS = -1
	return c.serve(ctx, s, cluster, logger)
}

func (c *Command) serve(ctx context.Context, s *settings, cluster *rest.Config, logger *slog.Logger) error {
	mgr, err := manager.New(cluster, s.managerOptions(logger))
	if err != nil {
		return fmt.Errorf("reach the cluster at %s: %w", cluster.Host, err)
	}
	if err := controller.CheckCRD(mgr.GetRESTMapper()); err != nil {
		return err
	}
	o := c.Options
	if o.Cluster, err = s.clusterID(ctx, mgr.GetAPIReader(), cluster); err != nil {
		return err
	}
	s.apply(&o)
	o.Log = logger
	if o.Cloud.Getenv == nil {
		o.Cloud.Getenv = c.Getenv
	}
	if node := c.Getenv("NODE_NAME"); node != "" {
		o.Cloud.NodeLabels = func(ctx context.Context) (map[string]string, error) { return nodeLabels(ctx, mgr.GetAPIReader(), node) }
	}
	clouds, err := controller.Add(mgr, o)
	if err != nil {
		return err
	}
	for name, add := range map[string]func(string, healthz.Checker) error{"ping": mgr.AddHealthzCheck, "started": mgr.AddReadyzCheck} {
		if err := add(name, healthz.Ping); err != nil {
			return err
		}
	}
	logger.Info("starting", "version", version.String(), "cluster", o.Cluster, "namespace", o.Namespace, "leader-elect", s.leaderElect)
	return errors.Join(mgr.Start(ctx), clouds.Close())
}

func (s *settings) managerOptions(logger *slog.Logger) manager.Options {
	grace := 20 * time.Second
	return manager.Options{
		Scheme:                        controller.Scheme(),
		Cache:                         controller.CacheOptions(s.namespace),
		Logger:                        logr.FromSlogHandler(logger.Handler()),
		Metrics:                       metricsserver.Options{BindAddress: s.metricsAddress},
		HealthProbeBindAddress:        s.healthAddress,
		LeaderElection:                s.leaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       s.namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
		GracefulShutdownTimeout:       &grace,
	}
}

// clusterID: the process's environment, as in a node's adaptor, then the key
// that the adaptor has its environment from, then the cluster itself.
func (s *settings) clusterID(ctx context.Context, reader client.Reader, cluster *rest.Config) (string, error) {
	if s.cluster != "" {
		return s.cluster, nil
	}
	_, keys, err := controller.ReadSettings(ctx, reader, s.namespace)
	if err != nil {
		return "", err
	}
	if id := keys.Get("CLUSTER_ID"); id != "" {
		return id, nil
	}
	return claims.ClusterID(ctx, cluster)
}

// nodeLabels returns the labels of a node.
func nodeLabels(ctx context.Context, reader client.Reader, name string) (map[string]string, error) {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, fmt.Errorf("read the labels of node %s, which settings come from that are not set: %w", name, err)
	}
	return node.Labels, nil
}

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
