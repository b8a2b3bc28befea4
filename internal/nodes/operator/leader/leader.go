// SPDX-License-Identifier: Apache-2.0

// Package leader has the leader election of the operator's programs.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options are what the flags say. A duration of 0 is not set.
type Options struct {
	Elect                 bool
	Lease, Renew, Retry   time.Duration
	Lock, Name, Namespace string
}

// AddFlags adds the flags, with this lease as default.
func (o *Options) AddFlags(f *pflag.FlagSet, lease, namespace string) {
	f.BoolVar(&o.Elect, "leader-elect", true, "work only while holding the lease")
	f.DurationVar(&o.Lease, "leader-elect-lease-duration", 0, "how long a lease is good for; 0: 137s, or 270s on a control plane of one node")
	f.DurationVar(&o.Renew, "leader-elect-renew-deadline", 0, "how long renewing may take; 0: 107s, or 240s on a control plane of one node")
	f.DurationVar(&o.Retry, "leader-elect-retry-period", 0, "how long to wait between attempts; 0: 26s, or 60s on a control plane of one node")
	f.StringVar(&o.Lock, "leader-elect-resource-lock", "leases", "what is held: leases")
	f.StringVar(&o.Name, "leader-elect-resource-name", lease, "`name` of the lease")
	f.StringVar(&o.Namespace, "leader-elect-resource-namespace", namespace, "`namespace` of the lease")
}

// Validate returns what the flags cannot mean.
func (o *Options) Validate() error {
	if o.Lock != "leases" {
		return fmt.Errorf("--leader-elect-resource-lock %q: only leases can be held", o.Lock)
	}
	if !o.Elect {
		return nil
	}
	if o.Name == "" || o.Namespace == "" {
		return errors.New("--leader-elect-resource-name and --leader-elect-resource-namespace: want a lease's name and namespace")
	}
	lease, renew, retry := o.durations("")
	if o.Lease < 0 || o.Renew < 0 || o.Retry < 0 || lease <= renew || renew <= retry {
		return fmt.Errorf("--leader-elect-lease-duration (%s) must exceed --leader-elect-renew-deadline (%s), and that --leader-elect-retry-period (%s)", lease, renew, retry)
	}
	return nil
}

// durations returns the durations of the flags. If none is set, it returns durations
// that survive a restart of the API server, which takes longer on a single node.
func (o *Options) durations(t configv1.TopologyMode) (lease, renew, retry time.Duration) {
	if o.Lease == 0 && o.Renew == 0 && o.Retry == 0 && t == configv1.SingleReplicaTopologyMode {
		return 270 * time.Second, 240 * time.Second, 60 * time.Second
	}
	return cmp.Or(o.Lease, 137*time.Second), cmp.Or(o.Renew, 107*time.Second), cmp.Or(o.Retry, 26*time.Second)
}

// Check fails at once if the account lacks the rights for leader election, which
// the library would retry for ever.
func (o *Options) Check(ctx context.Context, api *rest.Config) error {
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
// topology. The lease is given back at the end: the process has to end then,
// too.
func (o *Options) Apply(m *manager.Options, t configv1.TopologyMode) {
	lease, renew, retry := o.durations(t)
	m.LeaderElection, m.LeaderElectionReleaseOnCancel = o.Elect, true
	m.LeaderElectionID, m.LeaderElectionNamespace, m.LeaderElectionResourceLock = o.Name, o.Namespace, o.Lock
	m.LeaseDuration, m.RenewDeadline, m.RetryPeriod = &lease, &renew, &retry
}
