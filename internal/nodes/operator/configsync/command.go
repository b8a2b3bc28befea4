// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// Command returns config-sync as a command. It ends with the command's context.
func Command(getenv func(string) string) *cobra.Command {
	var (
		o          Options
		kubeconfig string
	)
	c := &cobra.Command{
		Use:   "config-sync",
		Short: "Prepare on OpenShift the configuration and the trusted authorities of the cloud controller manager",
		Long: `Prepare on OpenShift the configuration and the trusted authorities of the cloud
controller manager, in the ConfigMaps cloud-conf and ccm-trusted-ca.

The variable RELEASE_VERSION names the release whose feature gates count.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return program.UsageError(err)
			}
			logger := daemon.Log(c.ErrOrStderr())
			api, err := daemon.Cluster(kubeconfig, getenv, "ccm-operator-config-sync")
			if err != nil {
				return err
			}
			o.Version = getenv("RELEASE_VERSION")
			logger.Info("starting", "version", version.String(), "release", o.Version, "namespace", o.Namespace)
			return Run(c.Context(), api, o, logger)
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "`file` with the cluster's address and credentials; else KUBECONFIG, else those of the pod")
	f.StringVar(&o.Namespace, "namespace", defaultNamespace, "`namespace` of the cloud controller manager")
	f.StringVar(&o.HealthAddress, "health-addr", ":9440", "`address` that answers /healthz and /readyz; 0: none")
	f.StringVar(&o.SystemBundle, "trusted-ca-bundle", "", "`file` with the system's authorities; else "+trustbundle.RedHatFile+" or, where there is none, "+trustbundle.DebianFile)
	f.DurationVar(&o.CloudConfigDegradedAfter, "cloud-config-degraded-after", 2*time.Minute, "how long copying the configuration may fail before the operator is degraded")
	f.DurationVar(&o.TrustedCADegradedAfter, "trusted-ca-degraded-after", 2*time.Minute, "how long putting together the authorities may fail before the operator is degraded")
	f.DurationVar(&o.TrustedCAStaleAfter, "trusted-ca-window", 150*time.Second, "after what time without one a failure of the authorities is a new one; 0: never")
	f.DurationVar(&o.Resync, "resync", 10*time.Minute, "after what time all is looked at though nothing changed")
	o.Leader.AddFlags(f, "cluster-cloud-config-sync-leader", operatorNamespace)
	return c
}
