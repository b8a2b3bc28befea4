// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of peerpod-ctrl.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider/config"
)

const (
	name = "peerpod-ctrl"
	// leaseName is that of earlier versions, so that old and new never act at the
	// same time during an upgrade.
	leaseName = "33f6c5d6.confidentialcontainers.org"
)

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	// Options are what flags and environment do not say; they fill in the rest.
	Options controller.Options
}

type settings struct {
	controllers.API
	MetricsAddress string `flag:"metrics-bind-address" default:":8080" usage:"address of the metrics; 0: none"`
	HealthAddress  string `flag:"health-probe-bind-address" default:":8081" usage:"address of /healthz and /readyz; 0: none"`
	LeaderElect    bool   `flag:"leader-elect" usage:"of several processes only one acts"`
	controller.Options
	controllers.Log
	controllers.Accepted
	program.VersionFlag
}

// Settings returns the program's settings.
func Settings() *config.Settings { return config.Bind(new(settings)) }

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	return c.program(&settings{Options: c.Options}).Main(args)
}

func (c *Command) program(s *settings) *program.Program {
	return &program.Program{
		Name: name, About: "peerpod-ctrl removes the instances of deleted PeerPods, and those that lost their PeerPod.\n\nUsage: peerpod-ctrl [flags]\n",
		Settings: config.Bind(s), Check: s.check, Run: func(ctx context.Context) error { return c.serve(ctx, s) },
		Stdout: c.Stdout, Stderr: c.Stderr, Getenv: c.Getenv,
	}
}

func (s *settings) check() error {
	if s.Namespace == "" {
		return fmt.Errorf("PEERPODS_NAMESPACE is not set: set it to the namespace of ConfigMap %s and Secret %s", controller.ConfigMapName, controller.SecretName)
	}
	return nil
}

func (c *Command) serve(ctx context.Context, s *settings) error {
	o := s.Options
	o.Log = s.Log.Install(c.Stderr)
	cluster, err := s.Find(name)
	if err != nil {
		return err
	}
	// Priority and fairness in the API server bound the rate, not this process.
	cluster.QPS = -1
	mgr, err := controllers.NewManager(cluster, o.Log, s.managerOptions())
	if err != nil {
		return err
	}
	if err := controller.CheckCRD(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if o.Cluster, err = s.clusterID(ctx, mgr.GetAPIReader(), cluster); err != nil {
		return err
	}
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
	if err := mgr.AddReadyzCheck("started", healthz.Ping); err != nil {
		return err
	}
	o.Log.Info("starting", "version", version.String(), "cluster", o.Cluster, "namespace", o.Namespace, "leader-elect", s.LeaderElect)
	return errors.Join(mgr.Start(ctx), clouds.Close())
}

func (s *settings) managerOptions() manager.Options {
	grace := 20 * time.Second
	return manager.Options{
		Scheme:                  controller.Scheme(),
		Cache:                   controller.CacheOptions(s.Namespace),
		Metrics:                 metricsserver.Options{BindAddress: s.MetricsAddress},
		HealthProbeBindAddress:  s.HealthAddress,
		LeaderElection:          s.LeaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: s.Namespace,
		GracefulShutdownTimeout: &grace,
	}
}

// clusterID: the process's environment, as in a node's adaptor, then the key
// that the adaptor has its environment from, then the cluster itself.
func (s *settings) clusterID(ctx context.Context, reader client.Reader, cluster *rest.Config) (string, error) {
	if s.Cluster != "" {
		return s.Cluster, nil
	}
	_, keys, err := controller.ReadSettings(ctx, reader, s.Namespace)
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
