// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of peerpods-webhook.
package command

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/outrigger/outrigger/internal/peerpods/webhook"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/certs"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// Lease is the leader election's.
const Lease = "a3663802.confidential-containers"

// Command is one run of the program.
type Command struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run does what args (without the program's name) say and returns the exit
// code.
func (c *Command) Run(args []string) int {
	var s settings
	err := s.parse(args, c.Getenv, c.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return program.ExitOK
	case s.version:
		fmt.Fprintln(c.Stdout, "peerpods-webhook version "+version.String())
		return program.ExitOK
	case err != nil:
		err = program.Usagef("%w\nTry peerpods-webhook -help.", err)
	default:
		err = program.UntilSignal(func(ctx context.Context) error { return c.serve(ctx, &s) })
	}
	return program.Exit("peerpods-webhook", c.Stderr, err)
}

func (c *Command) serve(ctx context.Context, s *settings) error {
	log := s.logger(c.Stderr)
	toLogr := logr.FromSlogHandler(log.Handler())
	ctrl.SetLogger(toLogr)
	klog.SetLogger(toLogr)
	cluster, err := s.cluster(c.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	keeper := s.keeper(log)
	mgr, err := s.manager(cluster, keeper)
	if err != nil {
		return err
	}
	if err := s.fill(mgr, keeper, log); err != nil {
		return err
	}
	log.Info("peerpods-webhook starts", "version", version.String(), "runtime_class", s.runtimeClass, "slot", s.slot)
	return mgr.Start(ctx)
}

func (s *settings) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// cluster returns how to reach the API server.
func (s *settings) cluster(fromEnv string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: s.kubeconfig}
	if s.kubeconfig == "" {
		rules.ExplicitPath = fromEnv
	}
	if rules.ExplicitPath == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("reach the cluster: %w; outside a pod pass -kubeconfig", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the cluster by %s: %w", rules.ExplicitPath, err)
	}
	return cfg, nil
}

// keeper returns the keeper of the certificate. Its client is set when there is a
// manager.
func (s *settings) keeper(log *slog.Logger) *certs.Keeper {
	k := &certs.Keeper{
		Config: s.configuration, RuntimeClass: s.runtimeClass, Now: time.Now, Log: log,
		Secret: client.ObjectKey{Namespace: s.namespace, Name: s.certSecret},
	}
	if s.certDir != "" {
		k.Secret.Name = ""
	}
	return k
}

func (s *settings) manager(cluster *rest.Config, keeper *certs.Keeper) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistration.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	own := []func(*tls.Config){s.tlsProfile}
	if s.certDir == "" {
		own = append(own, func(cfg *tls.Config) { cfg.GetCertificate = keeper.GetCertificate })
	}
	return ctrl.NewManager(cluster, ctrl.Options{
		Scheme: scheme,
		Metrics: metricsserver.Options{
			BindAddress: s.metricsAddress, SecureServing: true, CertDir: s.certDir,
			FilterProvider: filters.WithAuthenticationAndAuthorization, TLSOpts: own,
		},
		HealthProbeBindAddress:        s.healthAddress,
		LeaderElection:                s.leaderElect,
		LeaderElectionID:              Lease,
		LeaderElectionNamespace:       s.namespace,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer:                 ctrlwebhook.NewServer(ctrlwebhook.Options{Port: s.port, CertDir: s.certDir, TLSOpts: own}),
	})
}

func (s *settings) tlsProfile(cfg *tls.Config) {
	cfg.MinVersion, cfg.CipherSuites = s.tlsMin, s.tlsSuites
}

// fill puts the parts into the manager.
func (s *settings) fill(mgr ctrl.Manager, keeper *certs.Keeper, log *slog.Logger) error {
	uncached, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	keeper.Client, keeper.Elected = uncached, mgr.Elected()
	server := mgr.GetWebhookServer()
	server.Register(webhook.Path, &ctrlwebhook.Admission{
		Handler: &webhook.Mutator{RuntimeClass: s.runtimeClass, Slot: s.slot, Log: log},
	})
	return errors.Join(
		mgr.Add(keeper),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("server", server.StartedChecker()),
		mgr.AddReadyzCheck("registration", keeper.Ready),
	)
}
