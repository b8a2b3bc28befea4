// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/version"
)

// Options are what the operator needs.
type Options struct {
	Namespace         string `flag:"namespace" usage:"namespace of the cloud controller manager"`
	OperatorNamespace string `flag:"operator-namespace" default:"openshift-cloud-controller-manager-operator" usage:"namespace of the operator, and of what CloudControllerManagers refer to"`
	ImagesFile        string `flag:"images-json" default:"/etc/cloud-controller-manager-config/images.json" usage:"file with the images, on OpenShift"`
	// Release is OpenShift's, or openshift.UnknownVersion.
	Release string
	Bundles bundle.Set
	TLS     settings.TLS
	// SystemBundle is for trustbundle.SystemFile.
	SystemBundle        string `flag:"trusted-ca-bundle" usage:"file with the system's authorities, elsewhere than on OpenShift; else the usual ones"`
	MetricsAddress      string `flag:"metrics-bind-address" default:":9258" usage:"address that serves metrics over HTTPS to those whom the cluster lets; 0: none"`
	MetricsCertificates string `flag:"metrics-cert-dir" usage:"folder with tls.crt and tls.key for the metrics; while they are not there, the certificate is one that nobody has signed"`
	HealthAddress       string `flag:"health-addr" default:":9440" usage:"address that answers /healthz and /readyz; 0: none"`

	DegradedAfter time.Duration `flag:"degraded-after" default:"150s" min:"0s" usage:"how long deploying may fail before the operator is degraded"`
	Requeue       time.Duration `flag:"requeue" default:"30s" min:"1ns" usage:"how soon a rollout is checked again without an event"`
	Resync        time.Duration `flag:"resync" default:"10m" min:"1ns" usage:"after what time all is looked at though nothing changed"`
	GatesAfter    time.Duration `flag:"feature-gates-after" default:"1m" min:"0s" usage:"how long to wait for the feature gates of a release before going on without"`
	Settle        time.Duration `flag:"version-settle" default:"5m" min:"0s" usage:"how long no older API server must have answered before the cloud controller manager is upgraded"`
	WatchdogAfter time.Duration `flag:"watchdog-after" default:"2m" min:"0s" usage:"how long a Node may wait for its cloud controller manager before it is said why; 0: never"`
	Guard         bool          `flag:"guard-node-deletions" usage:"guard deletions of Nodes on OpenShift too; elsewhere spec.nodeDeletions says so"`
	Leader        daemon.Election

	// watchWithin is how long the first look at what is watched may take before
	// the operator gives up; 0 is two minutes.
	watchWithin time.Duration
}

// Validate returns what is wrong that no tag can express, by the flag's name.
func (o *Options) Validate() error {
	return errors.Join(daemon.CheckNamespace("namespace", o.Namespace), daemon.CheckNamespace("operator-namespace", o.OperatorNamespace),
		daemon.CheckAddress("metrics-bind-address", o.MetricsAddress), daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())
}

// flags are those that are read once they are all known.
type flags struct {
	Options
	bundleDirs      []string
	TLSMinVersion   string `flag:"tls-min-version" usage:"lowest TLS version of the operator's and the operands' servers, such as VersionTLS12; else the cluster's profile"`
	TLSCipherSuites string `flag:"tls-cipher-suites" usage:"cipher suites of these servers, with commas; else the cluster's profile"`
	WebhookPort     int    `flag:"webhook-port" default:"9443" usage:"not used; taken because installations give it"`
}

// Command returns the operator as a command. It ends with the command's context. known
// returns the set of bundles, given the folders that flags name.
func Command(getenv func(string) string, known func(folders []string) (bundle.Set, error)) *cobra.Command {
	f := flags{Options: Options{Namespace: bundle.DefaultNamespace, Leader: daemon.Election{Name: "cluster-cloud-controller-manager-leader"}}}
	c := &cobra.Command{
		Use:   "operator",
		Short: "Deploy the cloud controller manager that fits the cluster, and keep it right",
		Long: `Deploy the cloud controller manager that fits the cluster, and keep it right.

On OpenShift the cluster says what it runs on, and the ClusterOperator
cloud-controller-manager says how it is; run config-sync beside it. Elsewhere a
CloudControllerManager says what to deploy: kubectl get ccm.

The variable RELEASE_VERSION names OpenShift's release.`,
		Example: `  ccm-operator operator --namespace ccm-system --operator-namespace ccm-system
  ccm-operator operator --bundle-dir /bundles/mycloud`,
	}
	c.Flags().StringArrayVar(&f.bundleDirs, "bundle-dir", nil, "`folder` of a bundle that is used in place of the built-in one of the same platform; may be given several times")
	complete := func() error { return f.complete(getenv, known) }
	daemon.Command(c, getenv, operatorName, []any{&f, &f.Leader}, complete, func(ctx context.Context, api *rest.Config, logger *slog.Logger) error {
		logger.Info("starting", "version", version.String(), "release", f.Release, "namespace", f.Namespace)
		return Run(ctx, api, f.Options, logger)
	})
	c.Flags().Lookup("leader-elect-resource-namespace").Usage += "; else that of --operator-namespace"
	return c
}

func (o *flags) complete(getenv func(string) string, known func([]string) (bundle.Set, error)) (err error) {
	if o.TLS, err = settings.TLSFromFlags(o.TLSMinVersion, o.TLSCipherSuites); err != nil {
		return err
	}
	if o.Bundles, err = known(o.bundleDirs); err != nil {
		return err
	}
	o.Leader.Namespace = cmp.Or(o.Leader.Namespace, o.OperatorNamespace)
	o.Release = cmp.Or(getenv("RELEASE_VERSION"), openshift.UnknownVersion)
	return o.Validate()
}
