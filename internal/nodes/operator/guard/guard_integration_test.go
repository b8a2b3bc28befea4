// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guard

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/test/cluster"
)

type silence struct{ said []string }

func (s *silence) Eventf(about, _ runtime.Object, _, _, _, note string, _ ...any) {
	s.said = append(s.said, about.(*corev1.Node).Name)
}

// stand is a real API server with the policy, seen as an administrator and as
// the account of a cloud controller manager.
type stand struct {
	*testing.T
	admin, manager client.Client
	guard          *Guard
	events         *silence
	nodes          int
}

func newStand(t *testing.T) *stand {
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{
		// It would say of Nodes without kubelet that they are not Ready.
		ControllerManager: []string{"--controllers=*,-node-lifecycle-controller"},
	})
	s := &stand{T: t, events: &silence{}}
	as := func(user string) client.Client {
		config := rest.CopyConfig(c.RESTConfig())
		config.Impersonate.UserName = user
		if user != "" {
			config.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"}
		}
		all, err := client.New(config, client.Options{Scheme: scheme.Scheme})
		s.must(err)
		return all
	}
	s.admin, s.manager = as(""), as(NodeController)
	for _, o := range Policy(NodeController) {
		s.must(s.admin.Create(t.Context(), o))
	}
	s.guard = &Guard{
		Client: s.admin, Events: controllers.NewRecorder(s.events, nil), Namespace: "kube-system", Now: time.Now,
		Limits: func(context.Context) (Limits, bool, error) {
			l := Defaults()
			l.Deletions, l.NotReadyFor, l.YoungFor = 1, 0, 0
			return l, true, nil
		},
	}
	return s
}

func (s *stand) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stand) node(name string, ready corev1.ConditionStatus) *corev1.Node {
	s.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.must(s.admin.Create(s.Context(), n))
	bare := n.DeepCopy()
	s.nodes++
	since := time.Now().Add(time.Duration(s.nodes)*time.Minute - time.Hour)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}}
	s.must(s.admin.Status().Patch(s.Context(), n, client.MergeFrom(bare)))
	return n
}

func (s *stand) look() {
	s.Helper()
	_, err := s.guard.Reconcile(s.Context(), ctrl.Request{})
	s.must(err)
}

// refused expects the manager's deletion to be refused. A policy is enforced a
// moment after it was made: await tries without deleting.
func (s *stand) refused(n *corev1.Node, say string) {
	s.Helper()
	err := s.manager.Delete(s.Context(), n.DeepCopy())
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), say) {
		s.Fatalf("deletion of %s: %v, want it refused with %q", n.Name, err, say)
	}
}

// await waits until a deletion that is only tried has the wanted end.
func (s *stand) await(n *corev1.Node, done func(error) bool) {
	s.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := s.manager.Delete(s.Context(), n.DeepCopy(), client.DryRunAll)
		if done(err) {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("deletion of %s: %v", n.Name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func allowed(err error) bool { return err == nil }

func denied(say string) func(error) bool {
	return func(err error) bool { return err != nil && strings.Contains(err.Error(), say) }
}

// TestGuard: mass deletion is stopped, one Node a window goes, a person can
// open, and others than the manager are not stopped at all.
func TestGuard(t *testing.T) {
	s := newStand(t)
	for _, name := range []string{"ready-1", "ready-2", "ready-3"} {
		s.node(name, corev1.ConditionTrue)
	}
	first, second := s.node("lost-1", corev1.ConditionUnknown), s.node("lost-2", corev1.ConditionUnknown)
	s.look()
	s.await(second, denied("the deletion of Node lost-2 is guarded"))
	s.await(first, allowed)
	s.must(s.manager.Delete(t.Context(), first))
	s.look()
	s.refused(second, "kubectl annotate node lost-2 ccm.outrigger.dev/deletion=allow")
	if len(s.events.said) != 1 || s.events.said[0] != "lost-2" {
		t.Errorf("events about %q, want one about lost-2", s.events.said)
	}
	version := s.version()
	s.look()
	if is := s.version(); is != version {
		t.Error("nothing happened, and the ConfigMap was written")
	}
	s.annotate(second, Allow)
	s.await(second, allowed)
	s.look() // what a person has set stays
	s.await(second, allowed)
	s.annotate(second, "of another")
	s.await(second, denied("guarded"))
	s.must(s.admin.Delete(t.Context(), second))
}

// TestTicketIsTakenBack: a Node that is Ready again has none, nor has any once nothing
// is guarded; what a person allows ends some time.
func TestTicketIsTakenBack(t *testing.T) {
	s := newStand(t)
	for _, name := range []string{"ready-1", "ready-2"} {
		s.node(name, corev1.ConditionTrue)
	}
	n := s.node("lost", corev1.ConditionUnknown)
	s.look()
	s.must(s.admin.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	if n.Annotations[Annotation] != string(n.UID) {
		t.Fatalf("annotations %v", n.Annotations)
	}
	guarded := s.guard.Limits
	s.guard.Limits = func(context.Context) (Limits, bool, error) { return Limits{}, false, nil }
	s.look()
	if is := s.ticket(n); is != "" {
		t.Errorf("nothing is guarded, and it has the ticket %q", is)
	}
	if err := s.admin.Get(t.Context(), s.guard.key(), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("nothing is guarded, and tickets are noted: %v", err)
	}
	s.look()
	s.guard.Limits = guarded
	s.look()
	if is := s.ticket(n); is != string(n.UID) {
		t.Errorf("it is guarded again, and the ticket is %q", is)
	}
	was := n.DeepCopy()
	n.Status.Conditions[0].Status = corev1.ConditionTrue
	s.must(s.admin.Status().Patch(t.Context(), n, client.MergeFrom(was)))
	s.look()
	if is := s.ticket(n); is != "" {
		t.Errorf("it is Ready, and has the ticket %q", is)
	}
	s.annotate(n, Allow)
	s.look()
	another := *s.guard // after a restart
	another.Events, another.Now = controllers.NewRecorder(s.events, nil), func() time.Time { return time.Now().Add(59 * time.Minute) }
	s.guard = &another
	s.look()
	if is := s.ticket(n); is != Allow {
		t.Errorf("within its time it is %q", is)
	}
	s.guard.Now = func() time.Time { return time.Now().Add(time.Hour) }
	s.look()
	if is := s.ticket(n); is != "" {
		t.Errorf("after its time it is %q", is)
	}
}

func (s *stand) ticket(n *corev1.Node) string {
	s.Helper()
	s.must(s.admin.Get(s.Context(), client.ObjectKeyFromObject(n), n))
	return n.Annotations[Annotation]
}

func (s *stand) version() string {
	s.Helper()
	var cm corev1.ConfigMap
	s.must(s.admin.Get(s.Context(), s.guard.key(), &cm))
	return cm.ResourceVersion
}

func (s *stand) annotate(n *corev1.Node, value string) {
	s.Helper()
	s.must(s.admin.Get(s.Context(), client.ObjectKeyFromObject(n), n))
	was := n.DeepCopy()
	n.Annotations = map[string]string{Annotation: value}
	s.must(s.admin.Patch(s.Context(), n, client.MergeFrom(was)))
}
