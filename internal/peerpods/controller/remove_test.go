// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// without hides capabilities of a provider.
type without struct {
	*fake.Cloud
	capabilities []provider.Capability
}

func (w without) HasCapability(c provider.Capability) bool {
	return !slices.Contains(w.capabilities, c)
}

func hide(capabilities ...provider.Capability) func(*fake.Cloud) provider.Provider {
	return func(c *fake.Cloud) provider.Provider { return without{c, capabilities} }
}

func TestRemoveDeletesAndLetsGo(t *testing.T) {
	for name, capabilities := range map[string][]provider.Capability{
		"lists and gets": nil, "only lists": {provider.CapabilityGet}, "only gets": {provider.CapabilityList}, "neither": {provider.CapabilityList, provider.CapabilityGet},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, hide(capabilities...))
			pp, _ := s.run("web", "s1")
			_, other := s.run("db", "s2")
			s.delete(pp)
			s.settle(pp)
			s.gone(pp)
			s.wantInstances(other)
			if name == "neither" {
				s.events.want(t, "Pod/web Normal RemovedUnverified", "cannot list or look up instances")
			}
		})
	}
}

// TestRemoveWaitsForTheCloud: the finalizer stays while the cloud shows it.
func TestRemoveWaitsForTheCloud(t *testing.T) {
	s := newStand(t, nil)
	pp, i := s.run("web", "s1")
	s.cloud.Inject(fake.Throttled(fake.OpDelete).Repeated(3))
	s.delete(pp)
	for n := range 3 {
		if _, err := s.reconcile(pp); !errors.Is(err, provider.ErrUnavailable) {
			t.Fatalf("try %d: %v; want it to be tried again", n, err)
		}
	}
	now, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	s.wantInstances(i)
	if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionDeleting); c == nil || c.Reason != "CloudUnavailable" {
		t.Errorf("condition Deleting: %+v", c)
	}
	if now.Status.LastError == nil || now.Status.LastError.Class != "unavailable" || now.Status.Phase != v1alpha1.PhaseDeleting {
		t.Errorf("status %+v", now.Status)
	}
	s.events.want(t, "Pod/web Warning CloudUnavailable", "rate of requests exceeded")
	s.settle(pp)
	s.gone(pp)
	s.wantInstances()
}

func TestRemoveWithoutAListKeepsThePeerPod(t *testing.T) {
	s := newStand(t, nil)
	pp, _ := s.run("web", "s1")
	s.cloud.Inject(fake.Unauthenticated(fake.OpList).Repeated(3))
	s.delete(pp)
	var err error
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if _, err = s.reconcile(pp); err != nil {
			break
		}
		now, getErr := s.get(pp)
		if getErr != nil {
			t.Fatalf("let go without proof: %v", getErr)
		}
		if now.Status.LastError != nil {
			break
		}
		s.awaitQueued(deadline)
	}
	s.events.want(t, "Unauthenticated", "peer-pods-secret")
	s.settle(pp)
	s.gone(pp)
}

// TestRemoveFindsWhatWasNeverNoted: the node died between the cloud's answer
// and its note.
func TestRemoveFindsWhatWasNeverNoted(t *testing.T) {
	s := newStand(t, nil)
	pp := s.claim("web", "s1")
	s.create("web", "s1")
	s.delete(pp)
	s.sees(pp)
	s.clock.advance(2 * time.Minute) // settled
	s.settle(pp)
	s.gone(pp)
	s.wantInstances()
}

// TestSettlingBeginsWithTheFirstDeletion: while the cloud refuses deletions, an instance
// may still be in the making, however long that lasts.
func TestSettlingBeginsWithTheFirstDeletion(t *testing.T) {
	s := newStand(t, nil)
	pp := s.claim("web", "s1")
	s.create("web", "s1")
	s.sweep(0)
	s.cloud.Inject(fake.Throttled(fake.OpDelete).Repeated(1))
	s.delete(pp)
	if _, err := s.reconcile(pp); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatalf("%v; want the refused deletion", err)
	}
	s.clock.advance(time.Hour)
	s.sees(pp)
	s.sweep(time.Second) // its list shows nothing
	s.sees(pp)
	if _, err := s.get(pp); err != nil {
		t.Fatalf("gone before it settled: %v", err)
	}
	s.clock.advance(2 * time.Minute)
	s.settle(pp)
	s.gone(pp)
	s.wantInstances()
}

// sees has the controller see for the first time that a PeerPod is to go.
func (s *stand) sees(pp *v1alpha1.PeerPod) {
	s.t.Helper()
	if _, err := s.reconcile(pp); err != nil {
		s.t.Fatal(err)
	}
}

// TestRemoveByItsOwnClock: how long a PeerPod waits for an instance in the making does
// not depend on the API server's clock, which may be ahead or behind.
func TestRemoveByItsOwnClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			s := newStand(t, nil)
			pp := s.claim("web", "s1")
			s.clock.advance(-ahead) // that of the API server does not move
			s.delete(pp)
			result, err := s.reconcile(pp)
			if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute+2*time.Second {
				t.Fatalf("%+v, %v: want a wait of a minute", result, err)
			}
			s.clock.advance(2 * time.Minute)
			s.settle(pp)
			s.gone(pp)
		})
	}
}

func TestRemoveWaitsForACreationUnderWay(t *testing.T) {
	s := newStand(t, nil)
	pp := s.claim("web", "s1")
	s.delete(pp)
	result, err := s.reconcile(pp)
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute+2*time.Second {
		t.Fatalf("%+v, %v; want to come back within the minute", result, err)
	}
	s.create("web", "s1") // the cloud answers late
	s.clock.advance(2 * time.Minute)
	s.settle(pp)
	s.gone(pp)
	s.wantInstances()
}

// TestRemoveNeverTouchesForeign: instance ids put in by hand.
func TestRemoveNeverTouchesForeign(t *testing.T) {
	for name, capabilities := range map[string][]provider.Capability{"lists and gets": nil, "only lists": {provider.CapabilityGet}, "only gets": {provider.CapabilityList}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, hide(capabilities...))
			foreign := s.createIn("c2", "web", "f1")
			_, neighbour := s.run("db", "s2")
			for pod, id := range map[string]string{"a": foreign.ID, "b": neighbour.ID, "c": "no-such-id"} {
				pp := s.update(s.claim(pod, "s-"+pod), func(pp *v1alpha1.PeerPod) { pp.Spec.InstanceID = id })
				s.delete(pp)
				s.settle(pp)
				s.gone(pp)
			}
			s.wantInstances(foreign, neighbour)
			s.events.want(t, "PeerPod/", "Warning ForeignInstance", foreign.ID)
		})
	}
}

// TestClaimFromAnotherNamespace: whoever may write PeerPods in one namespace
// names the sandbox, or the instance, of another namespace's pod.
func TestClaimFromAnotherNamespace(t *testing.T) {
	for name, capabilities := range map[string][]provider.Capability{
		"lists and gets": nil, "only lists": {"Getter"}, "only gets": {"Lister"}, "neither": {"Getter", "Lister"},
	} {
		for what, foreign := range map[string]func(*v1alpha1.PeerPod, string, string){
			"sandbox":              func(pp *v1alpha1.PeerPod, sandbox, _ string) { pp.Spec.SandboxID = sandbox },
			"instance":             func(pp *v1alpha1.PeerPod, _, id string) { pp.Spec.InstanceID = id },
			"sandbox and instance": func(pp *v1alpha1.PeerPod, sandbox, id string) { pp.Spec.SandboxID, pp.Spec.InstanceID = sandbox, id },
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				s := newStand(t, hide(capabilities...))
				_, victim := s.run("web", "s1")
				pp := claims.New(claims.Claim{Provider: "fake", SandboxID: "mine", Cluster: "c1", Node: "worker", Namespace: "attacker", PodName: "web"})
				foreign(pp, "s1", victim.ID)
				if err := s.client.Create(t.Context(), pp); err != nil {
					t.Fatal(err)
				}
				s.clock.advance(time.Hour)
				s.sweep(time.Hour)
				if _, err := s.reconcile(pp); err != nil { // it would adopt here
					t.Fatal(err)
				}
				now, err := s.get(pp)
				if err != nil || now.Status.Instance != nil {
					t.Fatalf("status %+v, %v: adopted", now.Status, err)
				}
				s.delete(now)
				s.sees(now)
				s.clock.advance(time.Hour)
				s.settle(now)
				s.gone(now)
				s.wantInstances(victim)
			})
		}
	}
}

func TestRemoveOfAnotherClusterIsLeftAlone(t *testing.T) {
	s := newStand(t, nil)
	foreign := s.createIn("c2", "web", "s1")
	pp := claims.New(claims.Claim{Provider: "fake", SandboxID: "s1", Cluster: "c2", Namespace: "ns", PodName: "web"})
	pp.Spec.InstanceID = foreign.ID
	if err := s.client.Create(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
	s.delete(pp)
	if result, err := s.reconcile(pp); err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	now, err := s.get(pp)
	if err != nil {
		t.Fatal("let go: ", err)
	}
	if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionDeleting); c == nil || c.Reason != claims.ReasonForeignCluster || !strings.Contains(c.Message, "CLUSTER_ID") {
		t.Errorf("condition %+v", c)
	}
	s.wantInstances(foreign)
}

func TestRemoveWithoutItsProvider(t *testing.T) {
	s := newStand(t, nil)
	pp := claims.New(claims.Claim{Provider: "nocloud", SandboxID: "s1", Cluster: "c1", Namespace: "ns", PodName: "web", PodUID: "u"})
	if err := s.client.Create(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
	s.delete(pp)
	if result, err := s.reconcile(pp); err != nil || result.RequeueAfter != operatorPause {
		t.Errorf("%+v, %v", result, err)
	}
	s.events.want(t, "Pod/web Warning ProviderNotConfigured", "Unsupported cloud provider: nocloud", "peer-pods-cm")
}

func TestRemoveOfAnEmptyClaim(t *testing.T) {
	s := newStand(t, nil)
	pp := &v1alpha1.PeerPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Finalizers: []string{claims.Finalizer}}}
	if err := s.client.Create(context.Background(), pp); err != nil {
		t.Fatal(err)
	}
	s.delete(pp)
	if _, err := s.reconcile(pp); err != nil {
		t.Fatal(err)
	}
	s.gone(pp)
}

// TestRemoveWhatAnotherAdaptorLeft: Confidential Containers' adaptor notes the instance alone, which has no tags. Nothing is
// deleted until the ConfigMap names it, and then nothing else.
func TestRemoveWhatAnotherAdaptorLeft(t *testing.T) {
	for name, capabilities := range map[string][]provider.Capability{"lists and gets": nil, "only lists": {provider.CapabilityGet}, "only gets": {provider.CapabilityList}} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, hide(capabilities...))
			left, other := s.createIn("", "web", "f1"), s.createIn("", "db", "f2")
			_, ours := s.run("ours", "s1")
			pp := s.leave("web", left.ID)
			if result, err := s.reconcile(pp); err != nil || result.RequeueAfter == 0 {
				t.Fatalf("%+v, %v", result, err)
			}
			s.wantInstances(left, other, ours)
			s.events.want(t, "PeerPod/", "Warning ForeignInstance", left.ID, AdoptKey)
			s.adopt(other.ID + "x, " + left.ID)
			s.twice(pp)
			s.gone(pp)
			s.wantInstances(other, ours)
		})
	}
}

// TestAdoptionNeedsAnInstanceWithoutTags: consent to an instance does not make another cluster's, or one of a neighbour, its own.
func TestAdoptionNeedsAnInstanceWithoutTags(t *testing.T) {
	s := newStand(t, nil)
	_, ours := s.run("db", "s2")
	foreign := s.createIn("c2", "web", "f1")
	s.adopt(ours.ID + "," + foreign.ID + ",no-such-id")
	for pod, id := range map[string]string{"a": ours.ID, "b": foreign.ID} {
		pp := s.leave(pod, id)
		if _, err := s.reconcile(pp); err != nil {
			t.Fatal(err)
		}
		if now, err := s.get(pp); err != nil || now.DeletionTimestamp == nil {
			t.Errorf("%s: %v, %v", pod, now, err)
		}
	}
	s.wantInstances(ours, foreign)
	pp := s.leave("c", "no-such-id")
	s.twice(pp)
	s.gone(pp)
}

// leave makes a PeerPod in deletion as Confidential Containers' adaptor leaves it.
func (s *stand) leave(pod, instance string) *v1alpha1.PeerPod {
	s.t.Helper()
	pp := &v1alpha1.PeerPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: pod + "-resource-x", Finalizers: []string{claims.Finalizer}},
		Spec:       v1alpha1.PeerPodSpec{CloudProvider: "fake", InstanceID: instance},
	}
	if err := s.client.Create(s.t.Context(), pp); err != nil {
		s.t.Fatal(err)
	}
	s.delete(pp)
	return pp
}

// twice reconciles once to delete and once to see that the instance is gone.
func (s *stand) twice(pp *v1alpha1.PeerPod) {
	s.t.Helper()
	for range 2 {
		if _, err := s.reconcile(pp); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stand) adopt(ids string) {
	s.t.Helper()
	if err := s.configure(map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_TOKEN": "t", AdoptKey: ids}); err != nil {
		s.t.Fatal(err)
	}
}
