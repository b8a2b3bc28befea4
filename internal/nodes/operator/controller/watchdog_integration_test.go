// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// needsKeys is a bundle whose pods need a Secret.
func needsKeys() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "needs-keys"}, Data: map[string]string{
		"bundle.yaml": `apiVersion: ccm.outrigger.dev/v1alpha1
kind: Bundle
platform: Mine
provider: mine
containers:
  cloud-controller-manager:
    image: mine
    program: /mine
    cloudConfig: /etc/mine/cloud.conf
    secrets: [{name: keys, mountPath: /keys}]
`,
		"assets.deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: ` + libvirtDeployment + `
  annotations: {ccm.outrigger.dev/base: cloud-controller-manager}
`,
	}}
}

func waiting(name, providerID string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.ProviderID = providerID
	n.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	return n
}

// watched is a world with a Node that waits, and a manager's pod that is played.
type watched struct {
	*world
	// whole is the test that the subtests are of: what one injects stays.
	whole *testing.T
	node  *corev1.Node
	pod   *corev1.Pod
}

// keep creates an object for as long as the whole test runs.
func (w *watched) keep(t *testing.T, o client.Object) {
	t.Helper()
	must(t, w.client.Create(t.Context(), o))
	w.whole.Cleanup(func() {
		if err := w.client.Delete(w.background(), o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			w.whole.Error(err)
		}
	})
}

// watchdogNames injects each cause, one after another, and wants the running
// operator to name it: in the Node's condition, in one Event, and in the metric. What
// is injected stays, so that each cause has to win over those after it.
func watchdogNames(t *testing.T, of *world) {
	w := &watched{of, t, waiting("n", ""), managerPod()}
	w.keep(t, needsKeys())
	p := w.start(t, onVersion, func(o *Options) { o.WatchdogAfter = time.Millisecond; o.Requeue = 500 * time.Millisecond })
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.Provider, c.Spec.Bundle = "mine", &ccmv1alpha1.BundleReference{ConfigMap: "needs-keys"}
		c.Spec.Images = map[string]string{"mine": "example.test/mine:1"}
	}))
	w.keep(t, w.node)
	for _, c := range []struct {
		cause  watchdog.Cause
		node   string
		says   string
		inject func(*testing.T)
	}{
		{watchdog.KubeletNotExternal, "plain-kubelet", "--cloud-provider=external", func(t *testing.T) {
			w.keep(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain-kubelet"}})
		}},
		{watchdog.ForeignProviderID, "foreign", `"aws:///i-1" is not of mine`, func(t *testing.T) { w.keep(t, waiting("foreign", "aws:///i-1")) }},
		{watchdog.ConfigurationMissing, "n", "Secret " + operands + "/keys", func(*testing.T) {}},
		{watchdog.NoControllerManager, "n", "deploy one", func(t *testing.T) {
			w.keep(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "keys"}})
		}},
		{watchdog.PodsNotRunning, "n", "Unschedulable: no node fits", w.unschedulable},
		{watchdog.LeaseStale, "n", "there is no lease", func(t *testing.T) { w.podIs(t, runs(time.Hour, nil)) }},
		{watchdog.Silent, "n", "someone leads", w.led},
		{watchdog.CloudError, "n", "InstanceNotFound: nothing is named n", w.complained},
		{watchdog.VersionSkew, "n", "v1.20.0 is more than one minor version older", w.upgraded},
		{watchdog.None, "n", "has initialized", w.initialized},
	} {
		t.Run(string(c.cause), func(t *testing.T) {
			c.inject(t)
			w.named(t, c.node, c.cause, c.says)
			if c.cause == watchdog.PodsNotRunning {
				t.Run("InALoop", w.crashLoop)
			}
		})
	}
	p.stop()
}

func managerPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "manager", Labels: map[string]string{operandLabel: "Mine"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", AutomountServiceAccountToken: new(bool), NodeName: "elsewhere",
			Containers: []corev1.Container{{Name: bundle.Manager, Image: "example.test/mine:1"}},
		},
	}
}

func (w *watched) podIs(t *testing.T, change func(*corev1.PodStatus)) {
	t.Helper()
	was := w.pod.DeepCopy()
	change(&w.pod.Status)
	must(t, w.client.Status().Patch(t.Context(), w.pod, client.MergeFrom(was)))
}

func (w *watched) unschedulable(t *testing.T) {
	w.keep(t, w.pod)
	w.podIs(t, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodPending
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no node fits"}}
	})
}

// container is a pod whose container is so.
func container(is corev1.ContainerState, last *corev1.ContainerStateTerminated) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: bundle.Manager, Image: "example.test/mine:1", State: is, LastTerminationState: corev1.ContainerState{Terminated: last},
		}}
	}
}

func runs(since time.Duration, last *corev1.ContainerStateTerminated) func(*corev1.PodStatus) {
	return container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-since))}}, last)
}

// crashLoop: what is said stays as it is through each attempt, and has no secret. It
// was told with the cause, so that there is no Event more.
func (w *watched) crashLoop(t *testing.T) {
	crash := &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "login with password=hunter2: refused"}
	const says = "crashes, last exit 1: login with password=[hidden]: refused"
	w.podIs(t, container(corev1.ContainerState{Terminated: crash}, nil))
	w.named(t, "n", watchdog.PodsNotRunning, says)
	version := w.conditionOf(t, "n").LastHeartbeatTime
	w.podIs(t, container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}, crash))
	w.looked(t)
	w.podIs(t, runs(0, crash))
	w.looked(t)
	if is := w.conditionOf(t, "n"); !is.LastHeartbeatTime.Equal(&version) || !strings.Contains(is.Message, says) {
		t.Errorf("it was written again: %+v", is)
	}
	if all := w.eventsOf(t, "n", watchdog.PodsNotRunning); len(all) != 1 || all[0].Series != nil {
		t.Errorf("Events %+v", all)
	}
}

// looked waits until the Node was looked at twice more: once may have begun before.
func (w *watched) looked(t *testing.T) {
	t.Helper()
	for range 2 {
		was := waitedOf(t, "n")[w.conditionOf(t, "n").Reason]
		eventually(t, "a look", func() (string, bool) {
			is := waitedOf(t, "n")[w.conditionOf(t, "n").Reason]
			return fmt.Sprint(is), is > was
		})
	}
}

// led plays a leader whose lease holds until the end of the test.
func (w *watched) led(t *testing.T) {
	who, seconds, at := "someone", int32(15), metav1.NewMicroTime(time.Now().Add(time.Hour))
	w.keep(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: bundle.Manager},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &at},
	})
}

func (w *watched) complained(t *testing.T) {
	w.keep(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "n.complaint"}, Type: corev1.EventTypeWarning,
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n", UID: w.node.UID}, Source: corev1.EventSource{Component: "cloud-node-controller"},
		Reason: "InstanceNotFound", Message: "nothing is named n", LastTimestamp: metav1.Now(),
	})
}

// upgraded: the API servers are newer than what the manager fits, and no rule has
// one for them.
func (w *watched) upgraded(t *testing.T) {
	c := w.ccm(t)
	c.Spec.Versions = []ccmv1alpha1.VersionRule{{Kubernetes: "1.20", Version: "v1.20.0", Images: c.Spec.Images}}
	must(t, w.client.Update(t.Context(), c))
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "versions: none is for Kubernetes")
	must(t, w.client.Status().Patch(t.Context(), w.ccm(t), client.RawPatch(types.MergePatchType, []byte(`{"status":{"version":"v1.20.0"}}`))))
}

func (w *watched) initialized(t *testing.T) {
	patch := []byte(`{"spec":{"taints":null,"providerID":"mine://n"}}`)
	must(t, w.client.Patch(t.Context(), w.node.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// named waits until a cause is named everywhere.
func (w *watched) named(t *testing.T, node string, cause watchdog.Cause, says string) {
	t.Helper()
	eventually(t, "the condition of "+node, func() (string, bool) {
		c := w.conditionOf(t, node)
		return c.Reason + ": " + c.Message, c.Reason == string(cause) && strings.Contains(c.Message, says) && (c.Status == corev1.ConditionTrue) == (cause == watchdog.None)
	})
	eventually(t, "the Event of "+node, func() (string, bool) {
		all := w.eventsOf(t, node, cause)
		return fmt.Sprint(all), len(all) == 1 && (all[0].Type == corev1.EventTypeNormal) == (cause == watchdog.None)
	})
	eventually(t, "the metric of "+node, func() (string, bool) {
		all := waitedOf(t, node)
		_, has := all[string(cause)]
		return fmt.Sprint(all), has && len(all) == 1 || cause == watchdog.None && len(all) == 0
	})
}

func (w *watched) conditionOf(t *testing.T, node string) corev1.NodeCondition {
	t.Helper()
	var n corev1.Node
	must(t, w.client.Get(t.Context(), types.NamespacedName{Name: node}, &n))
	for _, c := range n.Status.Conditions {
		if c.Type == watchdog.Condition {
			return c
		}
	}
	return corev1.NodeCondition{Message: "not said"}
}

// eventsOf are the watchdog's of a Node and a cause.
func (w *watched) eventsOf(t *testing.T, node string, cause watchdog.Cause) (found []eventsv1.Event) {
	t.Helper()
	var all eventsv1.EventList
	must(t, w.client.List(t.Context(), &all, client.InNamespace(metav1.NamespaceDefault)))
	for _, e := range all.Items {
		if e.ReportingController == watchdog.Component && e.Regarding.Name == node && e.Reason == string(cause) {
			found = append(found, e)
		}
	}
	return found
}

// waitedOf is how long a Node has waited, by cause, as the metric has it.
func waitedOf(t *testing.T, node string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "outrigger_node_uninitialized_seconds" && labels["node"] == node {
				all[labels["cause"]] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}
