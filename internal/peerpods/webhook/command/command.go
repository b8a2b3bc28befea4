// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of peerpods-webhook.
package command

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/webhook"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/certs"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider/config"
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
func (c *Command) Run(args []string) int { return c.program(newSettings()).Main(args) }

func (c *Command) program(s *settings) *program.Program {
	return &program.Program{
		Name: "peerpods-webhook", About: "peerpods-webhook sizes the VMs of pods as the pods are created.\n",
		Settings: config.Bind(s), Check: s.check, Run: func(ctx context.Context) error { return c.serve(ctx, s) },
		Stdout: c.Stdout, Stderr: c.Stderr, Getenv: c.Getenv,
	}
}

func (c *Command) serve(ctx context.Context, s *settings) error {
	log := s.Log.Install(c.Stderr)
	cluster, err := s.Find("peerpods-webhook")
	if err != nil {
		return err
	}
	keeper := s.keeper(log)
	mgr, err := s.manager(cluster, keeper, log)
	if err != nil {
		return err
	}
	if err := s.fill(mgr, keeper, log); err != nil {
		return err
	}
	log.Info("peerpods-webhook starts", "version", version.String(), "runtime_class", s.RuntimeClass, "slot", s.Slot)
	return mgr.Start(ctx)
}

// keeper returns the keeper of the certificate. Its client is set when there is a
// manager.
func (s *settings) keeper(log *slog.Logger) *certs.Keeper {
	k := &certs.Keeper{
		Config: string(s.Configuration), RuntimeClass: string(s.RuntimeClass), Now: time.Now, Log: log,
		Secret: client.ObjectKey{Namespace: s.Namespace, Name: string(s.CertSecret)},
	}
	if s.CertDir != "" {
		k.Secret.Name = ""
	}
	return k
}

func (s *settings) manager(cluster *rest.Config, keeper *certs.Keeper, log *slog.Logger) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistration.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	own := []func(*tls.Config){s.tlsProfile}
	if s.CertDir == "" {
		own = append(own, func(cfg *tls.Config) { cfg.GetCertificate = keeper.GetCertificate })
	}
	return controllers.NewManager(cluster, log, ctrl.Options{
		Scheme: scheme,
		Metrics: metricsserver.Options{
			BindAddress: string(s.MetricsAddress), SecureServing: true, CertDir: s.CertDir,
			FilterProvider: filters.WithAuthenticationAndAuthorization, TLSOpts: own,
		},
		HealthProbeBindAddress:  string(s.HealthAddress),
		LeaderElection:          s.LeaderElect,
		LeaderElectionID:        Lease,
		LeaderElectionNamespace: s.Namespace,
		WebhookServer:           ctrlwebhook.NewServer(ctrlwebhook.Options{Port: s.Port, CertDir: s.CertDir, TLSOpts: own}),
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
		Handler: &webhook.Mutator{RuntimeClass: string(s.RuntimeClass), Slot: s.Slot, Log: log},
	})
	return errors.Join(
		mgr.Add(keeper),
		mgr.AddReadyzCheck("server", server.StartedChecker()),
		mgr.AddReadyzCheck("registration", keeper.Ready),
	)
}
