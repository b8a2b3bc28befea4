// SPDX-License-Identifier: Apache-2.0

// Package settings derives the values of a bundle from an OpenShift cluster's
// configuration, and the TLS versions and ciphers of the operator and its operands from flags
// or the cluster's profile.
package settings

import (
	"errors"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// Errors of a cluster whose configuration is incomplete. Their texts are those
// that users know.
var (
	ErrNoInfrastructure = errors.New("infrastructure is not given")
	ErrNoStatus         = errors.New("platform status is not populated on infrastructure")
	ErrNoPlatform       = errors.New("no platform provider found on infrastructure")
)

// Cluster is what a cluster says.
type Cluster struct {
	Infrastructure *configv1.Infrastructure
	// Proxy is nil where there is none.
	Proxy *configv1.Proxy
	// Gates are the cluster's features, and whether each is on. One that is not
	// there is unknown to the cluster, and off.
	Gates     map[string]bool
	TLS       TLS
	Images    bundle.Images
	Namespace string
}

// Platform is the cloud that a cluster runs on. CloudName is empty except for
// Azure.
type Platform struct{ Type, CloudName string }

// PlatformOf returns the cloud, or why it cannot be known.
func PlatformOf(i *configv1.Infrastructure) (Platform, error) {
	switch {
	case i == nil:
		return Platform{}, ErrNoInfrastructure
	case i.Status.PlatformStatus == nil:
		return Platform{}, ErrNoStatus
	case i.Status.PlatformStatus.Type == "":
		return Platform{}, ErrNoPlatform
	}
	p := Platform{Type: string(i.Status.PlatformStatus.Type)}
	if azure := i.Status.PlatformStatus.Azure; azure != nil {
		p.CloudName = string(azure.CloudName)
	}
	return p, nil
}

// Values returns the values of a bundle, and the platform that it has to be for.
func (c Cluster) Values() (bundle.Values, Platform, error) {
	platform, err := PlatformOf(c.Infrastructure)
	if err != nil {
		return bundle.Values{}, platform, err
	}
	v := bundle.Values{
		Flavor: bundle.OpenShift, Namespace: c.Namespace, Images: c.Images,
		InfrastructureName: c.Infrastructure.Status.InfrastructureName,
		SingleReplica:      c.Infrastructure.Status.ControlPlaneTopology == configv1.SingleReplicaTopologyMode,
		FeatureGates:       featureGates(c.Gates),
		TLSMinVersion:      c.TLS.MinVersion, TLSCipherSuites: c.TLS.CipherSuites,
	}
	if c.Proxy != nil {
		v.Proxy = &bundle.Proxy{HTTP: c.Proxy.Status.HTTPProxy, HTTPS: c.Proxy.Status.HTTPSProxy, None: c.Proxy.Status.NoProxy}
	}
	if platform.Type == string(configv1.VSpherePlatformType) && c.Gates["VSphereMixedNodeEnv"] {
		v.AdditionalLabels = "node.openshift.io/platform-type=vsphere"
	}
	return v, platform, nil
}

// managerGates are those that k8s.io/controller-manager v0.36 knows, sorted: a manager
// that is given another does not start.
var managerGates = []string{
	"CloudControllerManagerWatchBasedRoutesReconciliation", "CloudControllerManagerWebhook", "ControllerManagerReleaseLeaderElectionLockOnExit",
}

// featureGates returns the value of the managers' flag: the gates that are enabled and
// that managers know.
func featureGates(gates map[string]bool) string {
	var on []string
	for _, name := range managerGates {
		if gates[name] {
			on = append(on, name+"=true")
		}
	}
	return strings.Join(on, ",")
}
