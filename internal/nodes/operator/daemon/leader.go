// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Election are the settings; the names of the lease are those of the program. A duration of
// 0 is not set.
type Election struct {
	Elect     bool          `flag:"leader-elect" default:"true" usage:"work only while holding the lease"`
	Lease     time.Duration `flag:"leader-elect-lease-duration" min:"0s" usage:"how long a lease is good for; 0: 137s, or 270s on a control plane of one node"`
	Renew     time.Duration `flag:"leader-elect-renew-deadline" min:"0s" usage:"how long renewing may take; 0: 107s, or 240s on a control plane of one node"`
	Retry     time.Duration `flag:"leader-elect-retry-period" min:"0s" usage:"how long to wait between attempts; 0: 26s, or 60s on a control plane of one node"`
	Lock      string        `flag:"leader-elect-resource-lock" default:"leases" choices:"leases" usage:"what is held"`
	Name      string        `flag:"leader-elect-resource-name" usage:"name of the lease"`
	Namespace string        `flag:"leader-elect-resource-namespace" usage:"namespace of the lease"`
}

// Validate returns what the flags together cannot mean.
func (o *Election) Validate() error {
	if !o.Elect {
		return nil
	}
	if o.Name == "" || o.Namespace == "" {
		return errors.New("--leader-elect-resource-name and --leader-elect-resource-namespace: want a lease's name and namespace")
	}
	lease, renew, retry := o.durations("")
	if lease <= renew || renew <= retry {
		return fmt.Errorf("--leader-elect-lease-duration (%s) must exceed --leader-elect-renew-deadline (%s), and that --leader-elect-retry-period (%s)", lease, renew, retry)
	}
	return nil
}

// durations returns the durations of the flags. If none is set, it returns durations
// that survive a restart of the API server, which takes longer on a single node.
func (o *Election) durations(t configv1.TopologyMode) (lease, renew, retry time.Duration) {
	if o.Lease == 0 && o.Renew == 0 && o.Retry == 0 && t == configv1.SingleReplicaTopologyMode {
		return 270 * time.Second, 240 * time.Second, 60 * time.Second
	}
	return cmp.Or(o.Lease, 137*time.Second), cmp.Or(o.Renew, 107*time.Second), cmp.Or(o.Retry, 26*time.Second)
}

// Check fails at once if the account lacks the rights for leader election, which
// the library would retry for ever.
func (o *Election) Check(ctx context.Context, api *rest.Config) error {
	if !o.Elect {
		return nil
	}
	c, err := coordinationv1.NewForConfig(api)
	if err != nil {
		return err
	}
	_, err = c.Leases(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) {
		return nil // others are for the library, which tries again
	}
	return fmt.Errorf("take part in the election of a leader: %w: the installation's rights are missing, apply its rbac.yaml; --leader-elect=false is for one process alone", err)
}

// Apply turns on leader election for a manager, on a control plane of this
// topology.
func (o *Election) Apply(m *manager.Options, t configv1.TopologyMode) {
	lease, renew, retry := o.durations(t)
	m.LeaderElection = o.Elect
	m.LeaderElectionID, m.LeaderElectionNamespace, m.LeaderElectionResourceLock = o.Name, o.Namespace, o.Lock
	m.LeaseDuration, m.RenewDeadline, m.RetryPeriod = &lease, &renew, &retry
}
