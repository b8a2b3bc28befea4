// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of capi-manager.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/internal/machines/webhooks"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

const name = "capi-manager"

const introduction = `capi-manager makes machines for Cluster API: it reconciles

  DockerCluster, DockerMachine        containers of a Docker Engine, for trying out and for tests
  OutriggerCluster, OutriggerMachine  instances of any Outrigger provider

It runs beside Cluster API's own managers in a management cluster, where clusterctl
init puts it, and takes the same flags. To run it by hand against a cluster that has
Cluster API and the resources of config/crd:

  capi-manager --kubeconfig ~/.kube/config --webhook-port 0 --diagnostics-address 0

With machines in a cloud the provider's settings come from its variables:

  AWS_REGION=eu-central-1 … capi-manager --provider aws --webhook-port 0

Failure domains are settings of their own, in a file each:

  capi-manager --provider aws --failure-domain a=zone-a.env --failure-domain b=zone-b.env

Of several providers each cluster names its own, spec.provider of the OutriggerCluster;
the others have settings of their own, in a file or in the Secret provider-NAME of the
manager's namespace:

  capi-manager --provider aws --more-providers azure=azure.env,openstack

`

func about() string {
	names := provider.List()
	if len(names) == 0 {
		return introduction
	}
	return introduction + "Providers that are built in: " + strings.Join(names, ", ") + ". Others are plugins.\n"
}

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int { return c.program(new(settings)).Main(args) }

func (c *Command) program(s *settings) *program.Program {
	s.Provider = provider.Canonical(c.Getenv("CLOUD_PROVIDER")) // the help shows it as the default
	return &program.Program{
		Name: name, About: about(), Settings: bind(s), Check: s.check,
		Run:    func(ctx context.Context) error { return c.run(ctx, s) },
		Stdout: c.Stdout, Stderr: c.Stderr, Getenv: c.getenv,
	}
}

// getenv has DOCKER_TLS_VERIFY as Docker's own clients read it.
func (c *Command) getenv(name string) string {
	if text := c.Getenv(name); text == "" || name != "DOCKER_TLS_VERIFY" {
		return text
	}
	return "true"
}

func bind(s *settings) *config.Settings {
	bound := config.Bind(s)
	bound.Dash = "--"
	return bound
}

// Settings returns the program's settings.
func Settings() *config.Settings { return bind(new(settings)) }

func (c *Command) run(ctx context.Context, s *settings) error {
	logger := s.Log.Install(c.Stderr)
	cluster, err := s.Find(name)
	if err != nil {
		return err
	}
	cluster.QPS, cluster.Burst = float32(s.QPS), s.Burst
	return s.serve(ctx, cluster, logger)
}

func (s *settings) serve(ctx context.Context, cluster *rest.Config, logger *slog.Logger) error {
	mgr, err := controllers.NewManager(cluster, logger, s.managerOptions())
	if err != nil {
		return err
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
	logger.Info("starting", "version", version.String(), "providers", s.names(), "namespace", s.Namespace, "watch-filter", s.WatchFilter, "leader-elect", s.LeaderElect)
	return errors.Join(mgr.Start(ctx), closeKinds())
}

func addChecks(mgr manager.Manager, s *settings) error {
	ready := healthz.Ping
	if s.WebhookPort != 0 {
		if err := webhooks.SetupWithManager(mgr); err != nil {
			return err
		}
		ready = mgr.GetWebhookServer().StartedChecker()
	}
	return mgr.AddReadyzCheck("started", ready)
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

// Main runs the program of this process. A copy of it that has the name of a node agent is
// one: machines whose image has none get it.
func Main() int {
	if filepath.Base(os.Args[0]) == filepath.Base(nodeagent.Program) {
		return nodeagent.Main(os.Args[1:])
	}
	c := &Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	return c.Run(os.Args[1:])
}

const leaseName = "capi-manager-leader-election.outrigger.dev"

// Scheme has the types that the manager reads, writes and converts.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a type registered twice: seen by every test
		}
	}
	return scheme
}

func (s *settings) managerOptions() manager.Options {
	grace := 8 * time.Second // less than the ten that the pod has
	several := true          // managers in one process, in tests
	o := manager.Options{
		Scheme:                  Scheme(),
		Cache:                   cache.Options{SyncPeriod: &s.SyncPeriod, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 s.metricsOptions(),
		Controller:              controllerconfig.Controller{SkipNameValidation: &several},
		HealthProbeBindAddress:  s.HealthAddress,
		PprofBindAddress:        s.ProfilerAddress,
		LeaderElection:          s.LeaderElect,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: s.LeaderNamespace,
		LeaseDuration:           &s.Lease,
		RenewDeadline:           &s.Renew,
		RetryPeriod:             &s.Retry,
		GracefulShutdownTimeout: &grace,
	}
	if s.Namespace != "" {
		o.Cache.DefaultNamespaces = map[string]cache.Config{s.Namespace: {}}
	}
	if s.WebhookPort != 0 {
		o.WebhookServer = webhook.NewServer(webhook.Options{Port: s.WebhookPort, CertDir: s.WebhookCertDir})
	}
	return o
}

func (s *settings) metricsOptions() metricsserver.Options {
	o := metricsserver.Options{BindAddress: s.DiagnosticsAddress, SecureServing: !s.InsecureDiagnostics}
	if o.SecureServing {
		o.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return o
}
