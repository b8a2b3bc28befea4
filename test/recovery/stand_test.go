// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package recovery breaks things around running pods: it kills and replaces
// daemons, fails the cloud and takes away what pods need, on a real cluster of
// one node (etcd, kube-apiserver, kubelet, containerd) with Outrigger's shim,
// relay, adaptor, controller and webhook as processes.
//
// Where a test does not say otherwise, pods run in guests of [cluster.Cloud]:
// namespaces with the programs of the pod VM, at a cloud whose ledger shows
// every instance that there ever was.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// patience is ten times what anything here takes on an idle machine.
const patience = 3 * time.Minute

// namespace is that of the tests' pods.
const namespace = "default"

// site is a cluster with Outrigger on one node.
type site struct {
	t testing.TB
	*cluster.ControlPlane
	node *cluster.Node
	// cloud is nil where pods are in VMs.
	cloud     *cluster.Cloud
	outrigger *cluster.Outrigger
	client    kubernetes.Interface
	peerPods  *claims.REST
	image     string
}

// newSite has a cloud of guests.
func newSite(t testing.TB, o cluster.OutriggerOptions) *site {
	t.Helper()
	testns.RequireRoot(t)
	s := newCluster(t)
	s.cloud = cluster.StartCloud(t, fake.Options{})
	s.outrigger = cluster.Install(t, s.ControlPlane, s.node, s.cloud.Outrigger(o))
	return s
}

// newCluster has the node that Outrigger is to be installed on.
func newCluster(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, ControlPlane: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})}
	r := &cluster.Registry{}
	r.Start(t, s.ControlPlane)
	s.node = cluster.StartNode(t, s.ControlPlane, cluster.OutriggerNode(t, cluster.NodeOptions{Mirrors: map[string]string{r.Host: r.URL()}}))
	s.image = r.Push(t, "tools:1", cluster.Tools(t).Image)
	var err error
	if s.client, err = kubernetes.NewForConfig(s.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if s.peerPods, err = claims.NewREST(s.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// newPod is one that runs a shell script in a VM.
func (s *site) newPod(name, script string) *corev1.Pod {
	class, grace, token := cluster.RuntimeClass, int64(1), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			RuntimeClassName: &class, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token,
			Containers: []corev1.Container{{
				Name: "main", Image: s.image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script},
			}},
		},
	}
}

// create makes a pod, however often the API server has to be asked.
func (s *site) create(pod *corev1.Pod) error {
	return s.insist("create pod "+pod.Name, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func (s *site) remove(name string) error {
	return s.insist("delete pod "+name, func(ctx context.Context) error {
		err := s.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// gone waits until the API server has forgotten a pod.
func (s *site) gone(name string) error {
	return s.insist("wait for the end of pod "+name, func(ctx context.Context) error {
		pod, err := s.pod(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("it is there: phase %s, deletion %v", pod.Status.Phase, pod.DeletionTimestamp)
	})
}

func (s *site) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return s.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// ready waits until a pod is.
func (s *site) ready(name string) error {
	return s.insist("wait for pod "+name+" to be ready", func(ctx context.Context) error {
		pod, err := s.pod(ctx, name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("phase %s, containers %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
}

// insist repeats what fails, as long as patience lasts.
func (s *site) insist(what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		one, stop := context.WithTimeout(ctx, 10*time.Second)
		err := do(one)
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ask returns nothing to wait for.
func (s *site) eventually(t testing.TB, ask func(context.Context) string) {
	t.Helper()
	began, said := time.Now(), ""
	err := s.insist("wait", func(ctx context.Context) error {
		what := ask(ctx)
		if what == "" {
			return nil
		}
		if what != said && time.Since(began) > 5*time.Second {
			t.Logf("still waiting after %s: %s", time.Since(began).Round(time.Second), what)
			said = what
		}
		return errors.New(what)
	})
	must(t, err)
}

// claims are the PeerPods that there are.
func (s *site) claims(ctx context.Context) ([]v1alpha1.PeerPod, error) {
	return s.peerPods.OfNode(ctx, s.node.Name)
}

// events of a pod that the adaptor wrote.
func (s *site) events(ctx context.Context, pod string) ([]corev1.Event, error) {
	list, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.Source.Component != "cloud-api-adaptor" }), nil
}

// event waits for one with the reason.
func (s *site) event(t testing.TB, pod, reason string) corev1.Event {
	t.Helper()
	var found corev1.Event
	s.eventually(t, func(ctx context.Context) string {
		all, err := s.events(ctx, pod)
		if err != nil {
			return err.Error()
		}
		var reasons []string
		for _, e := range all {
			if e.Reason == reason {
				found = e
				return ""
			}
			reasons = append(reasons, e.Reason)
		}
		return fmt.Sprintf("no Event %s of pod %s, but %v", reason, pod, reasons)
	})
	return found
}

// nothingIsLeft waits until neither PeerPods nor instances are there, except
// for those of the keys given.
func (s *site) nothingIsLeft(t testing.TB, but ...string) {
	t.Helper()
	s.eventually(t, func(ctx context.Context) string {
		peerPods, err := s.claims(ctx)
		if err != nil {
			return err.Error()
		}
		var left []string
		for i := range peerPods {
			left = append(left, fmt.Sprintf("PeerPod %s (%s, finalizers %v)", peerPods[i].Name, peerPods[i].Status.Phase, peerPods[i].Finalizers))
		}
		resources, err := s.cloud.Leaks()
		if err != nil {
			return err.Error()
		}
		for _, r := range resources {
			if !slices.Contains(but, r.Key) {
				left = append(left, fmt.Sprintf("%s %s of %s", r.Kind, r.ID, r.Key))
			}
		}
		return strings.Join(left, ", ")
	})
}
