// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of outrigger-csi.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/internal/volumes"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

const name = "outrigger-csi"

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Modes are the services that the program has.
const (
	modeController = "controller"
	modeNode       = "node"
	modeAll        = "all"
)

type settings struct {
	Mode           string        `flag:"mode" env:"CSI_MODE" default:"all" choices:"controller,node,all" usage:"controller: once in a cluster, with the credentials of the cloud; node: on every node, without; all: both, for tests"`
	Endpoint       string        `flag:"endpoint" env:"CSI_ENDPOINT" default:"unix:///csi/csi.sock" usage:"socket at which kubelet and sidecars reach the driver"`
	Wrap           string        `flag:"wrap" env:"CSI_WRAP" usage:"socket of another CSI driver, whose volumes are disks of the provider: it gets all requests but those about volumes of pods in VMs; docs/volumes.md names the drivers"`
	Provider       string        `flag:"cloud-provider" env:"CLOUD_PROVIDER" usage:"provider that has the disks; its settings are its environment variables"`
	Cluster        string        `flag:"cluster-id" env:"CLUSTER_ID" usage:"identity of this cluster in owner tags of disks; default: the UID of namespace kube-system"`
	NodeName       string        `flag:"node-name" env:"NODE_NAME" usage:"name of the Node that this process runs on; needed unless the mode is controller"`
	Handlers       []string      `flag:"vm-runtime-classes" env:"VM_RUNTIME_CLASSES" default:"kata-remote" usage:"handlers of the RuntimeClasses whose pods run in VMs, with commas: volumes of their pods are given to the VM"`
	MaxVolumes     int           `flag:"max-volumes-per-node" env:"MAX_VOLUMES_PER_NODE" default:"0" min:"0" usage:"how many volumes the ordinary pods of a node can have, and those in VMs count as well; 0: the scheduler does not count"`
	CallTimeout    time.Duration `flag:"call-timeout" env:"CSI_CALL_TIMEOUT" default:"5m" min:"1s" usage:"how long one request may take; longer than the timeout of the sidecars gains nothing"`
	MetricsAddress string        `flag:"metrics-bind-address" default:":8080" usage:"address of /metrics; 0: none"`
	HealthAddress  string        `flag:"health-probe-bind-address" default:":8081" usage:"address of /healthz and /readyz; 0: none"`
	controllers.API
	controllers.Log
	program.VersionFlag
}

const about = `outrigger-csi is the CSI driver csi.outrigger.dev: volumes of any provider that has disks.

Pods in VMs and ordinary pods use the same StorageClass. For an ordinary pod the disk is attached to
its Node's instance and mounted there. For a pod whose RuntimeClass has one of the handlers of
-vm-runtime-classes it is not attached to the node: the pod's own VM gets it.

Usage: outrigger-csi [flags]

In a cluster it runs beside the sidecars of Kubernetes: kubectl apply -k deploy/csi. By hand:

  outrigger-csi -mode controller -cloud-provider libvirt -endpoint unix:///tmp/csi.sock -kubeconfig ~/.kube/config

With -wrap it stands before the driver of a cloud, such as ebs.csi.aws.com, and serves its volumes for pods in VMs.

The settings of the provider, such as LIBVIRT_URI, are environment variables: docs/reference/providers.

`

// Settings returns the program's settings.
func Settings() *config.Settings { return config.Bind(new(settings)) }

// Run does what args (without the program's name) say and returns the exit code.
func (c *Command) Run(args []string) int {
	s := &settings{}
	p := &program.Program{
		Name: name, About: about, Settings: config.Bind(s), Check: s.check, Run: func(ctx context.Context) error { return c.serve(ctx, s) },
		Stdout: c.Stdout, Stderr: c.Stderr, Getenv: c.Getenv,
	}
	return p.Main(args)
}

func (s *settings) check() error {
	var errs []error
	if _, err := volumes.SocketPath(s.Endpoint); err != nil {
		errs = append(errs, fmt.Errorf("-endpoint (CSI_ENDPOINT): %w", err))
	}
	if s.Provider == "" {
		errs = append(errs, errors.New("-cloud-provider (CLOUD_PROVIDER) is not set: which provider has the disks?"))
	}
	if wrapped, err := volumes.SocketPath(s.Wrap); s.Wrap != "" && err != nil {
		errs = append(errs, fmt.Errorf("-wrap (CSI_WRAP): %w", err))
	} else if own, _ := volumes.SocketPath(s.Endpoint); wrapped == own {
		errs = append(errs, fmt.Errorf("-wrap (CSI_WRAP) and -endpoint (CSI_ENDPOINT) are both %s: have the wrapped driver listen in another folder", own))
	}
	if s.Mode != modeController && s.NodeName == "" && s.Wrap == "" {
		errs = append(errs, fmt.Errorf("-node-name (NODE_NAME) is not set: -mode %s needs the name of its Node", s.Mode))
	}
	return errors.Join(errs...)
}

func (c *Command) serve(ctx context.Context, s *settings) error {
	log := s.Install(c.Stderr)
	api, err := s.Find(name)
	if err != nil {
		return err
	}
	grace := 20 * time.Second
	mgr, err := controllers.NewManager(api, log, manager.Options{
		Metrics: metricsserver.Options{BindAddress: s.MetricsAddress}, HealthProbeBindAddress: s.HealthAddress, GracefulShutdownTimeout: &grace,
	})
	if err != nil {
		return err
	}
	o := volumes.Options{CallTimeout: s.CallTimeout, Observe: newMeters(metrics.Registry).observe, Log: log}
	closeWrapped := func() error { return nil }
	if s.Wrap != "" {
		if o.Wrapped, closeWrapped, err = volumes.Dial(ctx, s.Wrap, s.provider(), log); err != nil {
			return fmt.Errorf("-wrap (CSI_WRAP): %w", err)
		}
	}
	o.Workloads = &volumes.Kubernetes{Driver: o.Driver(), Cache: mgr.GetCache(), API: mgr.GetAPIReader(), Handlers: s.Handlers}
	closeProvider := func() error { return nil }
	if s.Mode != modeNode {
		if o.Wrapped == nil { // else it makes no disks
			if o.Cluster, err = s.clusterID(ctx, mgr.GetAPIReader()); err != nil {
				return err
			}
		}
		if o.Provider, closeProvider, err = openProvider(ctx, s.provider(), c.Getenv, log); err != nil {
			return err
		}
	}
	return errors.Join(c.start(ctx, s, mgr, o), closeProvider(), closeWrapped())
}

// start serves the driver until ctx ends.
func (c *Command) start(ctx context.Context, s *settings, mgr manager.Manager, o volumes.Options) (err error) {
	if s.Mode != modeController {
		if o.Node, err = s.node(ctx, mgr.GetAPIReader(), o.Log); err != nil {
			return err
		}
	}
	driver, err := volumes.New(o)
	if err != nil {
		return fmt.Errorf("provider %s: %w", s.provider(), err)
	}
	if s.Mode != modeNode {
		if err := volumes.Index(ctx, mgr.GetFieldIndexer(), o.Driver()); err != nil {
			return err
		}
	}
	err = errors.Join(
		mgr.AddReadyzCheck("started", healthz.Ping),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return driver.Serve(ctx, s.Endpoint) })),
	)
	if err != nil {
		return err
	}
	o.Log.Info("starting", "version", version.String(), "mode", s.Mode, "driver", o.Driver(), "endpoint", s.Endpoint, "provider", s.provider(), "cluster", o.Cluster)
	return mgr.Start(ctx)
}

func (s *settings) provider() string { return provider.Canonical(s.Provider) }

// Main runs the program of this process.
func Main() int {
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}
