// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/leader"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
	"github.com/outrigger/outrigger/internal/version"
)

// Where cloud controller managers and their operator run.
const (
	defaultNamespace  = "openshift-cloud-controller-manager"
	operatorNamespace = "openshift-cloud-controller-manager-operator"
)

// Options are what the controllers need; their flags say what each is.
type Options struct {
	Namespace string
	// Version is the release, or empty.
	Version string
	// SystemBundle is for [trustbundle.SystemFile]. The file tells nobody of changes: it is
	// looked at after each Resync.
	SystemBundle                                     string
	CloudConfigDegradedAfter, TrustedCADegradedAfter time.Duration
	TrustedCAStaleAfter, Resync                      time.Duration
	HealthAddress                                    string
	Leader                                           leader.Options
}

// Validate returns what is wrong, by the flag's name.
func (o *Options) Validate() error {
	var faults failure.Faults
	daemon.CheckFlags(&faults, map[string]string{"namespace": o.Namespace}, map[string]time.Duration{"resync": o.Resync}, map[string]time.Duration{
		"cloud-config-degraded-after": o.CloudConfigDegradedAfter, "trusted-ca-degraded-after": o.TrustedCADegradedAfter, "trusted-ca-window": o.TrustedCAStaleAfter,
	})
	faults.AddIf(o.Namespace == userNamespace || o.Namespace == managedNamespace,
		"--namespace %s: that is where configurations come from; name the one where the cloud controller manager runs", o.Namespace)
	faults.AddIf(o.SystemBundle != "" && !filepath.IsAbs(o.SystemBundle), "--trusted-ca-bundle %q: want an absolute path", o.SystemBundle)
	return errors.Join(append(faults, daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())...)
}

// Command returns config-sync as a command. It ends with the command's context.
func Command(getenv func(string) string) *cobra.Command {
	var o Options
	c := &cobra.Command{
		Use:   "config-sync",
		Short: "Prepare on OpenShift the configuration and the trusted authorities of the cloud controller manager",
		Long: `Prepare on OpenShift the configuration and the trusted authorities of the cloud
controller manager, in the ConfigMaps cloud-conf and ccm-trusted-ca.

The variable RELEASE_VERSION names the release whose feature gates count.`,
	}
	f := c.Flags()
	f.StringVar(&o.Namespace, "namespace", defaultNamespace, "`namespace` of the cloud controller manager")
	f.StringVar(&o.HealthAddress, "health-addr", ":9440", "`address` that answers /healthz and /readyz; 0: none")
	f.StringVar(&o.SystemBundle, "trusted-ca-bundle", "", "`file` with the system's authorities; else "+trustbundle.RedHatFile+" or, where there is none, "+trustbundle.DebianFile)
	f.DurationVar(&o.CloudConfigDegradedAfter, "cloud-config-degraded-after", 2*time.Minute, "how long copying the configuration may fail before the operator is degraded")
	f.DurationVar(&o.TrustedCADegradedAfter, "trusted-ca-degraded-after", 2*time.Minute, "how long putting together the authorities may fail before the operator is degraded")
	f.DurationVar(&o.TrustedCAStaleAfter, "trusted-ca-window", 150*time.Second, "after what time without one a failure of the authorities is a new one; 0: never")
	f.DurationVar(&o.Resync, "resync", 10*time.Minute, "after what time all is looked at though nothing changed")
	o.Leader.AddFlags(f, "cluster-cloud-config-sync-leader", operatorNamespace)
	return daemon.Command(c, getenv, "ccm-operator-config-sync", o.Validate, func(ctx context.Context, api *rest.Config, logger *slog.Logger) error {
		o.Version = getenv("RELEASE_VERSION")
		logger.Info("starting", "version", version.String(), "release", o.Version, "namespace", o.Namespace)
		return Run(ctx, api, o, logger)
	})
}
