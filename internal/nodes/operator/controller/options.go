// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/leader"
	"github.com/outrigger/outrigger/internal/nodes/operator/tlsprofile"
)

// Options are what the operator needs.
type Options struct {
	// Namespace is where operands are, OperatorNamespace where the operator is.
	Namespace, OperatorNamespace string
	// ImagesFile is images.json; it is read on OpenShift only.
	ImagesFile string
	// Release is OpenShift's, or openshift.UnknownVersion.
	Release string
	Bundles bundle.Set
	// TLS are the settings that win over the cluster's.
	TLS tlsprofile.Settings
	// SystemBundle is the file with the system's authorities; empty is the first of
	// the usual ones that is there.
	SystemBundle string

	MetricsAddress, HealthAddress string
	// MetricsCertificates is a folder with tls.crt and tls.key, which may come
	// later; empty is a certificate that nobody has signed.
	MetricsCertificates string

	// DegradedAfter is how long failures last before they count, Requeue how soon
	// a rollout is looked at again, Resync after what time all is looked at though
	// nothing changed, GatesAfter how long feature gates are waited for.
	DegradedAfter, Requeue, Resync, GatesAfter time.Duration
	// Settle is how long no older API server must have answered before the cloud
	// controller manager is taken to a newer version.
	Settle time.Duration
	// WatchdogAfter is how long a Node may wait before the watchdog says why; 0
	// is never.
	WatchdogAfter time.Duration
	// Guard guards deletions of Nodes on OpenShift too.
	Guard bool

	Leader leader.Options

	// watchWithin is how long the first look at what is watched may take before
	// the operator gives up; 0 is two minutes.
	watchWithin time.Duration
}

// Validate returns what is wrong, by the flag's name.
func (o *Options) Validate() error {
	var errs []error
	for flag, ns := range map[string]string{"namespace": o.Namespace, "operator-namespace": o.OperatorNamespace} {
		if reasons := validation.IsDNS1123Label(ns); len(reasons) > 0 {
			errs = append(errs, fmt.Errorf("--%s %q: %s", flag, ns, reasons[0]))
		}
	}
	for flag, d := range map[string]time.Duration{
		"degraded-after": o.DegradedAfter, "feature-gates-after": o.GatesAfter, "watchdog-after": o.WatchdogAfter, "version-settle": o.Settle,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want 0 or more", flag, d))
		}
	}
	for flag, d := range map[string]time.Duration{"requeue": o.Requeue, "resync": o.Resync} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want more than 0", flag, d))
		}
	}
	return errors.Join(append(errs, daemon.CheckAddress("metrics-bind-address", o.MetricsAddress), daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())...)
}
