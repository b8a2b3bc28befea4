// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/ptr"

	"github.com/outrigger/outrigger/internal/redact"
)

// Cause says why a Node is not initialized. It is the reason of the Node's condition.
type Cause string

// The causes, in the order in which they are checked: an earlier cause explains the later
// ones.
const (
	// None means that the Node is initialized.
	None Cause = "Initialized"
	// KubeletNotExternal means that the kubelet does not expect a cloud controller
	// manager, so that none initializes the Node.
	KubeletNotExternal Cause = "KubeletNotExternal"
	// ForeignProviderID means that the Node belongs to another cloud by its providerID.
	ForeignProviderID Cause = "ForeignProviderID"
	// ConfigurationMissing means that a ConfigMap or Secret that the manager's pods need
	// does not exist.
	ConfigurationMissing Cause = "ConfigurationMissing"
	// NoControllerManager means that there are no pods and no fresh lease.
	NoControllerManager Cause = "NoCloudControllerManager"
	// PodsNotRunning means that there are pods but none runs.
	PodsNotRunning Cause = "CloudControllerManagerNotRunning"
	// LeaseStale means that pods run but none of them is the leader.
	LeaseStale Cause = "CloudControllerManagerLeaseStale"
	// VersionSkew means that the manager's version does not fit the API server's.
	VersionSkew Cause = "CloudControllerManagerVersionSkew"
	// CloudError means that the manager reported an error in an Event of the Node.
	CloudError Cause = "CloudError"
	// Silent means that a manager leads but has reported nothing.
	Silent Cause = "CloudControllerManagerSilent"
)

// Facts are the inputs of a diagnosis, beside the Node.
type Facts struct {
	// Provider is the name of the cloud, for messages.
	Provider string
	// Prefixes are the prefixes of the cloud's providerIDs, such as "aws://". If there
	// are none, every providerID may be of the cloud.
	Prefixes []string
	// Pods are the manager's pods; none if it runs outside of the cluster.
	Pods []corev1.Pod
	// Lease is the manager's lease; nil if there is none.
	Lease *coordinationv1.Lease
	// Missing are ConfigMaps and Secrets that the pods need.
	Missing []string
	// Skew says what is wrong with the manager's version; empty if it fits.
	Skew string
	// Warning is the newest warning about the Node by a cloud controller manager; nil if
	// there is none.
	Warning *corev1.Event
}

// Initialized reports whether a cloud controller manager has initialized the Node: the
// taint is gone, and the Node has a providerID.
func Initialized(n *corev1.Node) bool {
	return !tainted(n) && n.Spec.ProviderID != ""
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == cloudproviderapi.TaintExternalCloudProvider
	})
}

// Diagnose returns the cause, and a sentence that says what is wrong and what to do.
func Diagnose(n *corev1.Node, f Facts, now time.Time) (Cause, string) {
	id, led := n.Spec.ProviderID, f.Lease != nil && fresh(f.Lease, now)
	ofCloud := func(prefix string) bool { return strings.HasPrefix(id, prefix) }
	runs := func(p corev1.Pod) bool { return running(&p, now) }
	switch {
	case Initialized(n):
		return None, "the cloud controller manager has initialized the Node"
	case !tainted(n):
		return KubeletNotExternal, "the Node has neither providerID nor the taint " + cloudproviderapi.TaintExternalCloudProvider +
			": its kubelet runs without --cloud-provider=external; set that, delete the Node and start the kubelet again"
	case id != "" && len(f.Prefixes) > 0 && !slices.ContainsFunc(f.Prefixes, ofCloud):
		return ForeignProviderID, fmt.Sprintf("spec.providerID %q is not of %s (%s): the cloud controller manager leaves the Node alone; "+
			"correct the kubelet's --provider-id, or run the cloud controller manager of that cloud", id, f.Provider, strings.Join(f.Prefixes, ", "))
	case len(f.Missing) > 0:
		return ConfigurationMissing, "the cloud controller manager cannot start: not there: " + strings.Join(f.Missing, "; ")
	case len(f.Pods) == 0 && !led:
		return NoControllerManager, fmt.Sprintf("no pod of a cloud controller manager for %s, and no lease that is held: deploy one", f.Provider)
	case len(f.Pods) > 0 && !slices.ContainsFunc(f.Pods, runs):
		return PodsNotRunning, redact.Text("no pod of the cloud controller manager runs: " + states(f.Pods, now))
	case f.Lease == nil:
		return LeaseStale, "no pod of the cloud controller manager has become the leader: there is no lease; " +
			"look at the logs of its pods, which may lack permission for it"
	case !led:
		since := "never renewed"
		if at := f.Lease.Spec.RenewTime; at != nil {
			// The time, not the age: the message must not change while nothing else does.
			since = "last renewed at " + at.UTC().Format(time.RFC3339)
		}
		return LeaseStale, fmt.Sprintf("the lease %s/%s of %s was %s: its holder hangs or cannot reach the API server, and no other has taken over",
			f.Lease.Namespace, f.Lease.Name, holder(f.Lease), since)
	case f.Skew != "":
		return VersionSkew, f.Skew
	case f.Warning != nil:
		return CloudError, redact.Text(fmt.Sprintf("%s: %s", f.Warning.Reason, f.Warning.Message))
	}
	return Silent, fmt.Sprintf("%s leads the cloud controller managers for %s and has said nothing about this Node: look at its log", holder(f.Lease), f.Provider)
}

// fresh reports whether a lease is held. Another manager may take a lease over when it
// was not renewed for its duration; twice the duration leaves time for that.
func fresh(l *coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	if s.RenewTime == nil || ptr.Deref(s.HolderIdentity, "") == "" || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time) < 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}

func holder(l *coordinationv1.Lease) string {
	return cmp.Or(ptr.Deref(l.Spec.HolderIdentity, ""), "nobody")
}

// A container that has crashed runs again, for as long as it takes to crash. It is
// taken for one that runs only when it has run for graceAfterCrash and twice as
// long as the time before, or for settledAfterCrash, with which a kubelet forgets
// crashes too. Else the cause would change with each attempt.
const (
	graceAfterCrash   = 30 * time.Second
	settledAfterCrash = 10 * time.Minute
)

func states(pods []corev1.Pod, now time.Time) string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].Name + ": " + state(&pods[i], now)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func running(p *corev1.Pod, now time.Time) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Running == nil || crashed(&s, false, now) != nil
		})
}

// crashed returns how a container ended that has crashed and has not recovered since;
// nil otherwise.
func crashed(s *corev1.ContainerStatus, first bool, now time.Time) *corev1.ContainerStateTerminated {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Terminated != nil:
		last = s.State.Terminated
	case s.State.Waiting != nil && s.State.Waiting.Reason != "CrashLoopBackOff":
		return nil // what it waits for now is more specific
	case s.State.Running != nil && last != nil && recovered(s.State.Running, last, now):
		return nil
	}
	if last == nil || first && last.ExitCode == 0 {
		return nil
	}
	return last
}

// recovered reports whether a container has run for long enough after a crash.
func recovered(is *corev1.ContainerStateRunning, last *corev1.ContainerStateTerminated, now time.Time) bool {
	before := last.FinishedAt.Sub(last.StartedAt.Time)
	return now.Sub(is.StartedAt.Time) >= min(graceAfterCrash+2*before, settledAfterCrash)
}

// state returns the reason why a pod does not run. It is the same for each attempt of
// a pod that crashes again and again.
func state(p *corev1.Pod, now time.Time) string {
	first := len(p.Status.InitContainerStatuses)
	for i, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := crashed(&s, i < first, now); t != nil {
			return s.Name + " crashes, " + ended(t)
		}
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return fmt.Sprintf("%s waits: %s", s.Name, waiting(w))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return cmp.Or(string(p.Status.Phase), "no phase yet")
}

func ended(t *corev1.ContainerStateTerminated) string {
	why := ""
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		why = " (" + t.Reason + ")"
	}
	return fmt.Sprintf("last exit %d%s: %s", t.ExitCode, why, lastLine(t.Message))
}

// waiting returns the reason why a container waits. An image that cannot be pulled
// alternates between two reasons; the result is the same for both.
func waiting(w *corev1.ContainerStateWaiting) string {
	reason, message := w.Reason, w.Message
	if reason == "ErrImagePull" || reason == "ImagePullBackOff" {
		reason = "image cannot be pulled"
		if _, cause, has := strings.Cut(message, "ErrImagePull: "); has {
			message = cause
		}
	}
	return cmp.Or(strings.Trim(reason+": "+message, ": "), "no reason given")
}

// stamped is what loggers put before a message, which differs each time: that of
// klog, and the time of others.
var stamped = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+\] |\b(?:time|ts)=\S+ |"(?:time|ts)":("[^"]*"|[\d.e+]+),?`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return cmp.Or(strings.TrimSpace(stamped.ReplaceAllString(lines[len(lines)-1], "")), "no message")
}
