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
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/leader"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/tlsprofile"
	"github.com/outrigger/outrigger/internal/version"
)

// Options are what the operator needs; their flags say what each is.
type Options struct {
	// Namespace is where operands are, OperatorNamespace where the operator is.
	Namespace, OperatorNamespace string
	ImagesFile                   string
	// Release is OpenShift's, or openshift.UnknownVersion.
	Release string
	Bundles bundle.Set
	TLS     tlsprofile.Settings
	// SystemBundle is for trustbundle.SystemFile.
	SystemBundle                  string
	MetricsAddress, HealthAddress string
	MetricsCertificates           string

	// Requeue is how soon a rollout is looked at again, GatesAfter how long feature gates
	// are waited for, Settle how long no older API server must have answered before the
	// manager is taken to a newer version, WatchdogAfter how long a Node may wait; 0 of
	// the last is never.
	DegradedAfter, Requeue, Resync, GatesAfter, Settle, WatchdogAfter time.Duration
	// Guard guards deletions of Nodes on OpenShift too.
	Guard  bool
	Leader leader.Options

	// watchWithin is how long the first look at what is watched may take before
	// the operator gives up; 0 is two minutes.
	watchWithin time.Duration
}

// Validate returns what is wrong, by the flag's name.
func (o *Options) Validate() error {
	var faults failure.Faults
	daemon.CheckFlags(&faults, map[string]string{"namespace": o.Namespace, "operator-namespace": o.OperatorNamespace},
		map[string]time.Duration{"requeue": o.Requeue, "resync": o.Resync},
		map[string]time.Duration{
			"degraded-after": o.DegradedAfter, "feature-gates-after": o.GatesAfter, "watchdog-after": o.WatchdogAfter, "version-settle": o.Settle,
		})
	return errors.Join(append(faults, daemon.CheckAddress("metrics-bind-address", o.MetricsAddress), daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())...)
}

// flags are those that are read once they are all known.
type flags struct {
	Options
	tlsMinVersion, tlsCipherSuites string
	bundleDirs                     []string
	webhookPort                    int
}

// Command returns the operator as a command. It ends with the command's context. known
// returns the set of bundles, given the folders that flags name.
func Command(getenv func(string) string, known func(folders []string) (bundle.Set, error)) *cobra.Command {
	var f flags
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
	f.register(c)
	complete := func() error { return f.complete(getenv, known) }
	return daemon.Command(c, getenv, operatorName, complete, func(ctx context.Context, api *rest.Config, logger *slog.Logger) error {
		logger.Info("starting", "version", version.String(), "release", f.Release, "namespace", f.Namespace)
		return Run(ctx, api, f.Options, logger)
	})
}

func (o *flags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.Namespace, "namespace", bundle.DefaultNamespace, "`namespace` of the cloud controller manager")
	f.StringVar(&o.OperatorNamespace, "operator-namespace", "openshift-cloud-controller-manager-operator", "`namespace` of the operator, and of what CloudControllerManagers refer to")
	f.StringVar(&o.ImagesFile, "images-json", "/etc/cloud-controller-manager-config/images.json", "`file` with the images, on OpenShift")
	f.StringArrayVar(&o.bundleDirs, "bundle-dir", nil, "`folder` of a bundle that is used in place of the built-in one of the same platform; may be given several times")
	f.StringVar(&o.SystemBundle, "trusted-ca-bundle", "", "`file` with the system's authorities, elsewhere than on OpenShift; else the usual ones")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":9258", "`address` that serves metrics over HTTPS to those whom the cluster lets; 0: none")
	f.StringVar(&o.MetricsCertificates, "metrics-cert-dir", "", "`folder` with tls.crt and tls.key for the metrics; while they are not there, the certificate is one that nobody has signed")
	f.StringVar(&o.HealthAddress, "health-addr", ":9440", "`address` that answers /healthz and /readyz; 0: none")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "not used; taken because installations give it")
	f.StringVar(&o.tlsMinVersion, "tls-min-version", "", "lowest TLS version of the operator's and the operands' servers, such as VersionTLS12; else the cluster's profile")
	f.StringVar(&o.tlsCipherSuites, "tls-cipher-suites", "", "cipher suites of these servers, with commas; else the cluster's profile")
	f.DurationVar(&o.DegradedAfter, "degraded-after", 150*time.Second, "how long deploying may fail before the operator is degraded")
	f.DurationVar(&o.Requeue, "requeue", 30*time.Second, "how soon a rollout is checked again without an event")
	f.DurationVar(&o.Resync, "resync", 10*time.Minute, "after what time all is looked at though nothing changed")
	f.DurationVar(&o.GatesAfter, "feature-gates-after", time.Minute, "how long to wait for the feature gates of a release before going on without")
	f.DurationVar(&o.Settle, "version-settle", 5*time.Minute, "how long no older API server must have answered before the cloud controller manager is upgraded")
	f.DurationVar(&o.WatchdogAfter, "watchdog-after", 2*time.Minute, "how long a Node may wait for its cloud controller manager before it is said why; 0: never")
	f.BoolVar(&o.Guard, "guard-node-deletions", false, "guard deletions of Nodes on OpenShift too; elsewhere spec.nodeDeletions says so")
	o.Leader.AddFlags(f, "cluster-cloud-controller-manager-leader", "")
	f.Lookup("leader-elect-resource-namespace").Usage += "; else that of --operator-namespace"
}

func (o *flags) complete(getenv func(string) string, known func([]string) (bundle.Set, error)) (err error) {
	if o.TLS, err = tlsprofile.FromFlags(o.tlsMinVersion, o.tlsCipherSuites); err != nil {
		return err
	}
	if o.Bundles, err = known(o.bundleDirs); err != nil {
		return err
	}
	o.Leader.Namespace = cmp.Or(o.Leader.Namespace, o.OperatorNamespace)
	o.Release = cmp.Or(getenv("RELEASE_VERSION"), openshift.UnknownVersion)
	return o.Validate()
}
