// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func node(providerID string, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n-uid"}}
	n.Spec.ProviderID = providerID
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func leaseOf(who string, renewed time.Duration) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(now.Add(-renewed))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-controller-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

func pod(phase corev1.PodPhase, state corev1.ContainerState) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "ccm-1"}}
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", State: state}}
	return p
}

func event(reason, message, from string, ago time.Duration) corev1.Event {
	return corev1.Event{
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, InvolvedObject: corev1.ObjectReference{UID: "n-uid"},
		ReportingController: from, LastTimestamp: metav1.NewTime(now.Add(-ago)),
	}
}

func TestDiagnose(t *testing.T) {
	const taint = cloudproviderapi.TaintExternalCloudProvider
	alive := pod(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	crashing := pod(corev1.PodRunning, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
	crashing.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "first\nunknown cloud provider \"x\"\n"}
	pending := pod(corev1.PodPending, corev1.ContainerState{})
	pending.Status.ContainerStatuses = nil
	pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no nodes"}}
	good := Facts{Provider: "libvirt", Prefixes: []string{"libvirt://"}, Pods: []corev1.Pod{alive}, Lease: leaseOf("ccm-1", time.Second)}
	with := func(change func(*Facts)) Facts { f := good; change(&f); return f }

	for name, c := range map[string]struct {
		node  *corev1.Node
		facts Facts
		want  Cause
		says  string
	}{
		"initialized":        {node("libvirt://x"), Facts{}, None, "has initialized"},
		"kubelet":            {node(""), good, KubeletNotExternal, "--cloud-provider=external"},
		"foreign":            {node("aws:///x", taint), good, ForeignProviderID, `"aws:///x" is not of libvirt (libvirt://)`},
		"missing":            {node("", taint), with(func(f *Facts) { f.Missing = []string{"Secret a/b"} }), ConfigurationMissing, "Secret a/b"},
		"nothing":            {node("", taint), Facts{Provider: "libvirt"}, NoControllerManager, "deploy one"},
		"nothing, old lease": {node("", taint), Facts{Lease: leaseOf("ccm-1", time.Hour)}, NoControllerManager, "deploy one"},
		"outside":            {node("", taint), Facts{Lease: leaseOf("elsewhere", time.Second)}, Silent, "elsewhere leads"},
		"crash loop":         {node("", taint), with(func(f *Facts) { f.Pods = []corev1.Pod{crashing} }), PodsNotRunning, `manager crashes, last exit 1: unknown cloud provider "x"`},
		"pending":            {node("", taint), with(func(f *Facts) { f.Pods = []corev1.Pod{pending} }), PodsNotRunning, "Unschedulable: no nodes"},
		"one of two runs":    {node("", taint), with(func(f *Facts) { f.Pods = []corev1.Pod{pending, alive} }), Silent, "ccm-1 leads"},
		"no lease":           {node("", taint), with(func(f *Facts) { f.Lease = nil }), LeaseStale, "there is no lease"},
		"stale lease":        {node("", taint), with(func(f *Facts) { f.Lease = leaseOf("ccm-1", time.Minute) }), LeaseStale, "last renewed at 2026-01-02T03:03:05Z"},
		"released lease":     {node("", taint), with(func(f *Facts) { f.Lease = leaseOf("", time.Second) }), LeaseStale, "of nobody"},
		"skew":               {node("", taint), with(func(f *Facts) { f.Skew = "1.33 is too old for 1.36" }), VersionSkew, "too old"},
		"said": {node("", taint), with(func(f *Facts) {
			e := event("InstanceNotFound", "no instance n", "cloud-node-controller", time.Minute)
			f.Warning = &e
		}), CloudError, "InstanceNotFound: no instance n"},
	} {
		cause, message := Diagnose(c.node, c.facts, now)
		if cause != c.want || !strings.Contains(message, c.says) {
			t.Errorf("%s: %s: %s\nwant %s: ...%s...", name, cause, message, c.want, c.says)
		}
	}
}
