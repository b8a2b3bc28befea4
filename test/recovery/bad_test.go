// SPDX-License-Identifier: Apache-2.0

//go:build integration

package recovery

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
)

// TestWhatGoesWrong takes away, one after the other, what pods need, on one
// cluster. At the end nothing is left at the cloud but what is another's.
func TestWhatGoesWrong(t *testing.T) {
	s := newSite(t, cluster.OutriggerOptions{
		Controller: []string{"-sweep-period=1s", "-sweep-grace=20s", "-settle-after=2s", "-adopt-after=1s"},
	})
	foreign := s.foreignInstance(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"CredentialsExpire", s.credentialsExpire},
		{"PodDeletedWhileItsVMBoots", s.deletedWhileBooting},
		{"NamespaceDeleted", s.namespaceDeleted},
		{"SecretGone", s.secretGone},
		{"TwoAdaptors", s.twoAdaptors},
		{"PeerPodEdited", func(t *testing.T) { s.peerPodEdited(t, foreign.ID) }},
		{"PeerPodDeleted", s.peerPodDeleted},
		{"VMLost", s.vmLost},
		{"APIServerAway", s.apiServerAway},
		{"NodeLost", s.nodeLost}, // the last one: there is no node then
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
			s.nothingIsLeft(t, foreign.Key)
		})
	}
	s.checkLedger(t, foreign.ID)
}

// run makes a pod and returns it and its PeerPod when both are ready.
func (s *site) run(t *testing.T, name, script string) (*corev1.Pod, *v1alpha1.PeerPod) {
	t.Helper()
	must(t, s.create(s.newPod(name, script)))
	must(t, s.ready(name))
	pod, err := s.pod(t.Context(), name)
	must(t, err)
	var pp *v1alpha1.PeerPod
	s.eventually(t, func(ctx context.Context) string {
		if pp = s.claimOf(ctx, name); pp == nil || pp.Status.Phase != v1alpha1.PhaseReady || pp.Spec.InstanceID == "" {
			return fmt.Sprintf("PeerPod of %s: %+v", name, pp)
		}
		return ""
	})
	return pod, pp
}

// claimOf returns the PeerPod of a pod; nil when there is none.
func (s *site) claimOf(ctx context.Context, pod string) *v1alpha1.PeerPod {
	all, _ := s.claims(ctx)
	for i := range all {
		if all[i].Spec.PodName == pod {
			return &all[i]
		}
	}
	return nil
}

func (s *site) end(t *testing.T, name string) {
	t.Helper()
	must(t, s.remove(name))
	must(t, s.gone(name))
}

// credentialsExpire: what cannot be removed is told, on the pod and on its
// PeerPod, and is removed once the credentials are renewed.
func (s *site) credentialsExpire(t *testing.T) {
	_, pp := s.run(t, "expired", "exec sleep infinity")
	s.cloud.Inject(fake.Unauthenticated(fake.OpDelete).Repeated(8))
	s.end(t, "expired")
	e := s.event(t, "expired", "RemovalUnauthenticated")
	if !strings.Contains(e.Message, "credentials") {
		t.Errorf("Event %+v", e)
	}
	s.eventually(t, func(ctx context.Context) string {
		now, err := s.peerPods.Get(ctx, namespace, pp.Name)
		switch {
		case apierrors.IsNotFound(err):
			t.Error("the PeerPod is gone, and nobody has said on it why its instance was there for so long")
			return ""
		case err != nil:
			return err.Error()
		case !strings.Contains(fmt.Sprint(now.Status), "Unauthenticated"):
			return fmt.Sprintf("status %+v", now.Status)
		}
		return ""
	})
}

// deletedWhileBooting: the kubelet ends what it has begun, then removes it, and
// no failure is reported.
func (s *site) deletedWhileBooting(t *testing.T) {
	asked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(asked)
	must(t, s.create(s.newPod("hasty", "exec sleep infinity")))
	<-gate.Reached()
	must(t, s.remove("hasty"))
	gate.Open()
	must(t, s.gone("hasty"))
	s.nothingIsLeft(t, foreignName)
	all, err := s.events(t.Context(), "hasty")
	must(t, err)
	for _, e := range all {
		if e.Type == corev1.EventTypeWarning {
			t.Errorf("Event %s: %s", e.Reason, e.Message)
		}
	}
}

// namespaceDeleted with a pod that runs and one whose VM boots.
func (s *site) namespaceDeleted(t *testing.T) {
	const doomed = "doomed"
	s.Kubectl(t, "create", "namespace", doomed)
	s.Kubectl(t, "wait", "--for=create", "serviceaccount/default", "-n", doomed, "--timeout=60s")
	running := s.newPod("running", "exec sleep infinity")
	running.Namespace = doomed
	must(t, s.create(running))
	s.Kubectl(t, "wait", "--for=condition=Ready", "pod/running", "-n", doomed, "--timeout=180s")
	asked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(asked)
	booting := s.newPod("booting", "exec sleep infinity")
	booting.Namespace = doomed
	must(t, s.create(booting))
	<-gate.Reached()
	s.Kubectl(t, "delete", "namespace", doomed, "--wait=false")
	gate.Open()
	s.Kubectl(t, "wait", "--for=delete", "namespace/"+doomed, "--timeout=180s")
}

// secretGone: the Secret of the provider is deleted while pods run. What is
// loaded goes on.
func (s *site) secretGone(t *testing.T) {
	s.run(t, "before", "exec sleep infinity")
	s.Kubectl(t, "delete", "secret", "peer-pods-secret", "-n", cluster.Namespace)
	s.outrigger.Controller.Restart(t)
	s.outrigger.ReplaceAdaptor(t, syscall.SIGTERM) // the manifest says optional
	s.outrigger.AwaitReady(t)
	s.end(t, "before")
	s.run(t, "afterwards", "exec sleep infinity")
	s.end(t, "afterwards")
}

// twoAdaptors: the second one says who was first and changes nothing.
func (s *site) twoAdaptors(t *testing.T) {
	pod, _ := s.run(t, "first", "exec sleep infinity")
	before := s.Kubectl(t, "get", "node", s.node.Name, "-o", "jsonpath={.status.capacity} {.metadata.annotations}")
	said := s.outrigger.SecondAdaptor(t)
	if !strings.Contains(said, "is already served by pid") {
		t.Errorf("the second adaptor said %s", said)
	}
	if after := s.Kubectl(t, "get", "node", s.node.Name, "-o", "jsonpath={.status.capacity} {.metadata.annotations}"); after != before {
		t.Errorf("the node was %s, and is %s", before, after)
	}
	s.sameContainers(t, pod)
	s.end(t, "first")
}

func (s *site) sameContainers(t *testing.T, before *corev1.Pod) {
	t.Helper()
	pod, err := s.pod(t.Context(), before.Name)
	must(t, err)
	for i, c := range pod.Status.ContainerStatuses {
		if c.RestartCount != 0 || c.ContainerID != before.Status.ContainerStatuses[i].ContainerID {
			t.Errorf("container was %+v, is %+v", before.Status.ContainerStatuses[i], c)
		}
	}
}

// peerPodEdited: somebody writes another's instance into it and takes the
// finalizer off, and deletes the pod.
func (s *site) peerPodEdited(t *testing.T, foreign string) {
	_, pp := s.run(t, "edited", "exec sleep infinity")
	s.Kubectl(t, "patch", "peerpod", pp.Name, "--type=merge", "-p", `{"metadata":{"finalizers":[]},"spec":{"instanceID":"`+foreign+`"}}`)
	s.end(t, "edited")
	s.nothingIsLeft(t, foreignName)
	if _, err := s.cloud.GetInstance(t.Context(), foreign); err != nil {
		t.Errorf("the foreign instance: %v", err)
	}
}

// peerPodDeleted: who deletes a PeerPod deletes its instance; the pod gets
// another.
func (s *site) peerPodDeleted(t *testing.T) {
	_, pp := s.run(t, "bereft", "exec sleep infinity")
	s.Kubectl(t, "delete", "peerpod", pp.Name, "--wait=false")
	s.anotherVM(t, "bereft", pp)
	s.end(t, "bereft")
}

// vmLost: a VM that dies is replaced, and the old one removed.
func (s *site) vmLost(t *testing.T) {
	_, pp := s.run(t, "mortal", "exec sleep infinity")
	must(t, s.cloud.Crash(pp.Spec.InstanceID))
	s.anotherVM(t, "mortal", pp)
	s.end(t, "mortal")
}

// anotherVM waits until the pod runs in another instance than that one.
func (s *site) anotherVM(t *testing.T, pod string, old *v1alpha1.PeerPod) {
	t.Helper()
	s.eventually(t, func(ctx context.Context) string {
		all, err := s.claims(ctx)
		if err != nil {
			return err.Error()
		}
		for i := range all {
			if all[i].Spec.PodName == pod && all[i].Status.Phase == v1alpha1.PhaseReady && all[i].Spec.InstanceID != old.Spec.InstanceID && all[i].DeletionTimestamp == nil {
				return ""
			}
		}
		return fmt.Sprintf("pod %s has no new VM among %d PeerPods", pod, len(all))
	})
	must(t, s.ready(pod))
}

// apiServerAway: meanwhile a pod's VM comes up, a container is started again, a
// pod stops. The API server hears of all of it later. OUTRIGGER_AWAY is for how
// many seconds at least, up to 120; as long as all of that takes by default.
func (s *site) apiServerAway(t *testing.T) {
	least := time.Duration(fromEnv(t, "OUTRIGGER_AWAY", 0)) * time.Second
	s.run(t, "restarts", "sleep 15")
	s.run(t, "stops", "trap '' TERM; while :; do sleep 1; done")
	asked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(asked)
	must(t, s.create(s.newPod("starts", "exec sleep infinity")))
	<-gate.Reached()
	grace := int64(8)
	must(t, s.client.CoreV1().Pods(namespace).Delete(t.Context(), "stops", metav1.DeleteOptions{GracePeriodSeconds: &grace}))
	s.kubeletSays(t, "stops", "Killing")
	stopping := s.claimOf(t.Context(), "stops").Spec.InstanceID
	before := s.node.Ctr(t, "containers", "ls", "-q")
	s.Kill()
	away := time.Now()
	gate.Open()
	s.eventually(t, func(ctx context.Context) string {
		if _, err := s.cloud.GetInstance(ctx, stopping); err == nil {
			return "the VM of the pod that stops is there"
		}
		fresh := 0
		for id := range strings.FieldsSeq(s.node.Ctr(t, "containers", "ls", "-q")) {
			if !strings.Contains(before, id) {
				fresh++
			}
		}
		if fresh < 2 { // that of the pod that starts, and the one that is started again
			return fmt.Sprintf("%d new containers", fresh)
		}
		if time.Since(away) < least {
			return "the API server is to be away for longer"
		}
		return ""
	})
	s.Start(t)
	t.Logf("the API server was away for %s", time.Since(away).Round(time.Second))
	must(t, s.ready("starts"))
	must(t, s.gone("stops"))
	s.eventually(t, func(ctx context.Context) string {
		pp := s.claimOf(ctx, "starts")
		if pp == nil || pp.Status.Phase != v1alpha1.PhaseReady || len(pp.OwnerReferences) == 0 {
			return fmt.Sprintf("PeerPod of the pod that started: %+v", pp)
		}
		pod, err := s.pod(ctx, "restarts")
		if err != nil || pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Sprintf("the container that ends was not started again: %v", err)
		}
		return ""
	})
	for _, name := range []string{"starts", "restarts"} {
		s.end(t, name)
	}
}

// kubeletSays waits for an Event of the kubelet.
func (s *site) kubeletSays(t *testing.T, pod, reason string) {
	t.Helper()
	s.eventually(t, func(ctx context.Context) string {
		list, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + pod})
		if err != nil || len(list.Items) == 0 {
			return fmt.Sprintf("no Event %s of pod %s, %v", reason, pod, err)
		}
		return ""
	})
}

// nodeLost: its machine is gone, and whoever runs the cluster deletes the node.
// The VMs of its pods are elsewhere; they go too.
func (s *site) nodeLost(t *testing.T) {
	s.run(t, "orphan", "exec sleep infinity")
	for _, daemon := range []interface{ Stop(syscall.Signal) }{s.node.Kubelet, s.node.Containerd, s.outrigger.Adaptor} {
		daemon.Stop(syscall.SIGKILL)
	}
	s.Kubectl(t, "delete", "node", s.node.Name)
	must(t, s.removeNow("orphan"))
	must(t, s.gone("orphan"))
}
