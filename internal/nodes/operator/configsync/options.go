// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/leader"
)

// Where cloud controller managers and their operator run.
const (
	defaultNamespace  = "openshift-cloud-controller-manager"
	operatorNamespace = "openshift-cloud-controller-manager-operator"
)

// Options are what the controllers need.
type Options struct {
	// Namespace is where the cloud controller manager runs.
	Namespace string
	// Version is the release, or empty.
	Version string
	// SystemBundle is the file with the system's authorities; empty is the
	// first of the usual ones that is there.
	SystemBundle string
	// How long failures last before they count.
	CloudConfigDegradedAfter, TrustedCADegradedAfter time.Duration
	// TrustedCAStaleAfter is after what time without a failure the next one is
	// a new one.
	TrustedCAStaleAfter time.Duration
	// Resync is after what time all is looked at though nothing changed; the
	// system's bundle tells nobody of changes.
	Resync time.Duration

	HealthAddress string
	Leader        leader.Options
}

// Validate returns what is wrong, by the flag's name.
func (o *Options) Validate() error {
	var errs []error
	if reasons := validation.IsDNS1123Label(o.Namespace); len(reasons) > 0 {
		errs = append(errs, fmt.Errorf("--namespace %q: %s", o.Namespace, reasons[0]))
	}
	if o.Namespace == userNamespace || o.Namespace == managedNamespace {
		errs = append(errs, fmt.Errorf("--namespace %s: that is where configurations come from; name the one where the cloud controller manager runs", o.Namespace))
	}
	if o.SystemBundle != "" && !filepath.IsAbs(o.SystemBundle) {
		errs = append(errs, fmt.Errorf("--trusted-ca-bundle %q: want an absolute path", o.SystemBundle))
	}
	for flag, d := range map[string]time.Duration{"cloud-config-degraded-after": o.CloudConfigDegradedAfter, "trusted-ca-degraded-after": o.TrustedCADegradedAfter, "trusted-ca-window": o.TrustedCAStaleAfter} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s %s: want 0 or more", flag, d))
		}
	}
	if o.Resync <= 0 {
		errs = append(errs, fmt.Errorf("--resync %s: want more than 0", o.Resync))
	}
	return errors.Join(append(errs, daemon.CheckAddress("health-addr", o.HealthAddress), o.Leader.Validate())...)
}
