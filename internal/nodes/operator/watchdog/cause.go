// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/outrigger/outrigger/internal/redact"
)

// Cause is why a Node is not initialized. It is the reason of its condition.
type Cause string

// The causes, in the order in which they are looked for: what comes first
// explains what comes after.
const (
	// None: the Node is initialized.
	None Cause = "Initialized"
	// KubeletNotExternal: the kubelet does not expect a cloud controller manager,
	// so that none is asked for the Node.
	KubeletNotExternal Cause = "KubeletNotExternal"
	// ForeignProviderID: the Node says that it is of another cloud.
	ForeignProviderID Cause = "ForeignProviderID"
	// ConfigurationMissing: a ConfigMap or Secret that the manager's pods need is not there.
	ConfigurationMissing Cause = "ConfigurationMissing"
	// NoControllerManager: nothing runs and nothing ever did.
	NoControllerManager Cause = "NoCloudControllerManager"
	// PodsNotRunning: there are pods, and none runs.
	PodsNotRunning Cause = "CloudControllerManagerNotRunning"
	// LeaseStale: pods run, and none of them is the leader.
	LeaseStale Cause = "CloudControllerManagerLeaseStale"
	// VersionSkew: the manager's version does not fit the API server's.
	VersionSkew Cause = "CloudControllerManagerVersionSkew"
	// CloudError: the manager said what is wrong, in an Event of the Node.
	CloudError Cause = "CloudError"
	// Silent: a manager leads and says nothing.
	Silent Cause = "CloudControllerManagerSilent"
)

// Facts are the inputs of a diagnosis, beside the Node.
type Facts struct {
	// Provider is the name of the cloud, for messages.
	Provider string
	// Prefixes are those of the providerIDs of that cloud, such as "aws://". With
	// none, every providerID may be of the cloud.
	Prefixes []string
	// Pods are those of the manager; none where it runs outside of the cluster.
	Pods []corev1.Pod
	// Lease is the manager's; nil where there is none.
	Lease *coordinationv1.Lease
	// Missing are ConfigMaps and Secrets that the pods need.
	Missing []string
	// Skew is what is wrong with the manager's version; empty when it fits.
	Skew string
	// Events are those of the Node.
	Events []corev1.Event
}

// Initialized reports whether a cloud controller manager has done its work: the
// taint is gone, and the Node knows its instance. Without its providerID a Node
// has not been seen by one.
func Initialized(n *corev1.Node) bool {
	return !tainted(n) && n.Spec.ProviderID != ""
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == cloudproviderapi.TaintExternalCloudProvider
	})
}

// Diagnose names the cause, with a sentence that says what is wrong and what to do.
func Diagnose(n *corev1.Node, f Facts, now time.Time) (Cause, string) {
	if Initialized(n) {
		return None, "the cloud controller manager has initialized the Node"
	}
	for _, look := range []func(*corev1.Node, Facts, time.Time) (Cause, string){
		kubelet, providerID, missing, absent, pods, lease, skew, said,
	} {
		if cause, message := look(n, f, now); cause != "" {
			return cause, message
		}
	}
	return Silent, fmt.Sprintf("%s leads the cloud controller managers for %s and has said nothing about this Node: look at its log", holder(f), f.Provider)
}

func kubelet(n *corev1.Node, _ Facts, _ time.Time) (Cause, string) {
	if tainted(n) {
		return "", ""
	}
	return KubeletNotExternal, "the Node has neither providerID nor the taint " + cloudproviderapi.TaintExternalCloudProvider +
		": its kubelet runs without --cloud-provider=external; set that, delete the Node and start the kubelet again"
}

func providerID(n *corev1.Node, f Facts, _ time.Time) (Cause, string) {
	id := n.Spec.ProviderID
	if id == "" || len(f.Prefixes) == 0 || slices.ContainsFunc(f.Prefixes, func(p string) bool { return strings.HasPrefix(id, p) }) {
		return "", ""
	}
	return ForeignProviderID, fmt.Sprintf("spec.providerID %q is not of %s (%s): the cloud controller manager leaves the Node alone; "+
		"correct the kubelet's --provider-id, or run the cloud controller manager of that cloud", id, f.Provider, strings.Join(f.Prefixes, ", "))
}

func missing(_ *corev1.Node, f Facts, _ time.Time) (Cause, string) {
	if len(f.Missing) == 0 {
		return "", ""
	}
	return ConfigurationMissing, "the cloud controller manager cannot start: not there: " + strings.Join(f.Missing, "; ")
}

func absent(_ *corev1.Node, f Facts, now time.Time) (Cause, string) {
	if len(f.Pods) > 0 || f.Lease != nil && fresh(f.Lease, now) {
		return "", ""
	}
	return NoControllerManager, fmt.Sprintf("no pod of a cloud controller manager for %s, and no lease that is held: deploy one", f.Provider)
}

func lease(_ *corev1.Node, f Facts, now time.Time) (Cause, string) {
	if f.Lease == nil {
		return LeaseStale, "no pod of the cloud controller manager has become the leader: there is no lease; " +
			"look at the logs of its pods, which may lack permission for it"
	}
	if fresh(f.Lease, now) {
		return "", ""
	}
	since := "never renewed"
	if at := f.Lease.Spec.RenewTime; at != nil {
		// The time, not the age: what is said changes only when something does.
		since = "last renewed at " + at.UTC().Format(time.RFC3339)
	}
	return LeaseStale, fmt.Sprintf("the lease %s/%s of %s was %s: its holder hangs or cannot reach the API server, and no other has taken over",
		f.Lease.Namespace, f.Lease.Name, holder(f), since)
}

// fresh: a lease may be taken over when it has not been renewed for its duration.
func fresh(l *coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.RenewTime == nil || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) < 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}

func holder(f Facts) string {
	if f.Lease == nil || f.Lease.Spec.HolderIdentity == nil || *f.Lease.Spec.HolderIdentity == "" {
		return "nobody"
	}
	return *f.Lease.Spec.HolderIdentity
}

func skew(_ *corev1.Node, f Facts, _ time.Time) (Cause, string) {
	if f.Skew == "" {
		return "", ""
	}
	return VersionSkew, f.Skew
}

// said is the newest warning about the Node of something that is not a kubelet
// or controller of Kubernetes.
func said(n *corev1.Node, f Facts, _ time.Time) (Cause, string) {
	var newest *corev1.Event
	for i := range f.Events {
		e := &f.Events[i]
		if e.Type == corev1.EventTypeWarning && e.InvolvedObject.UID == n.UID && ofManager(e) && (newest == nil || at(newest).Before(at(e))) {
			newest = e
		}
	}
	if newest == nil {
		return "", ""
	}
	return CloudError, redact.Text(fmt.Sprintf("%s: %s", newest.Reason, newest.Message))
}

func ofManager(e *corev1.Event) bool {
	from := cmp.Or(e.ReportingController, e.Source.Component)
	return strings.Contains(from, "cloud") && from != Component
}

func at(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
