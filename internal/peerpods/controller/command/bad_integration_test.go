// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/test/cluster"
)

// TestWithoutTheCRD: a clear end in place of a controller that sees nothing.
func TestWithoutTheCRD(t *testing.T) {
	w := &world{t: t, plane: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})}
	w.kubeconfig = w.plane.Kubeconfig
	code, out := w.start(t).exit()
	if code != 1 || !strings.Contains(out, "no resource peerpods.confidentialcontainers.org/v1alpha1") || !strings.Contains(out, "kubectl apply -k deploy/base/crd") {
		t.Errorf("exit %d: %s", code, out)
	}
	w.plane.Kill()
	if code, out := w.start(t).exit(); code != 1 || !strings.Contains(out, "reach the cluster at https://127.0.0.1:") {
		t.Errorf("without an API server: exit %d: %s", code, out)
	}
}

func TestOnOneCluster(t *testing.T) {
	w := newWorld(t)
	t.Run("validation", w.validation)
	t.Run("settings", w.settings)
	t.Run("secretGone", w.secretGone)
	t.Run("outage", w.outage)
	t.Run("lease", w.lease)
}

func (w *world) claimAndCreate(t *testing.T, name string) *v1alpha1.PeerPod {
	t.Helper()
	pp, err := w.claims.Claim(t.Context(), claims.Claim{Provider: "fake", SandboxID: name, Cluster: "c1", Namespace: "default", PodName: name})
	if err != nil {
		t.Fatal(err)
	}
	i, err := create(t.Context(), w.cloud, "c1", name, name)
	if err != nil {
		t.Fatal(err)
	}
	if pp, err = w.claims.Update(t.Context(), pp, claims.Created(v1alpha1.Instance{ID: i.ID, Type: "fake.small"}), claims.Ready); err != nil {
		t.Fatal(err)
	}
	return pp
}

// validation: what the API server refuses, and what it shows.
func (w *world) validation(t *testing.T) {
	pp := w.claimAndCreate(t, "shown")
	for _, patch := range []string{
		`{"spec":{"sandboxID":"other"}}`, `{"spec":{"sandboxID":null}}`, `{"spec":{"cloudProvider":"other"}}`,
		`{"spec":{"clusterID":"c2"}}`, `{"spec":null}`,
	} {
		if _, err := w.plane.TryKubectl("patch", "peerpod", pp.Name, "--type=merge", "-p", patch); err == nil {
			t.Errorf("%s is accepted", patch)
		}
	}
	out := w.plane.Kubectl(t, "get", "peerpods", "-o", "wide")
	for _, want := range []string{"PHASE", "Ready", "shown", pp.Spec.InstanceID, "fake.small"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	list := w.plane.Kubectl(t, "get", "pp", "--field-selector", "spec.cloudProvider=nobody", "-o", "name")
	if strings.TrimSpace(list) != "" {
		t.Errorf("the selector found %s", list)
	}
	w.remove(t, pp)
	if err := w.cloud.DeleteInstance(t.Context(), pp.Spec.InstanceID); err != nil {
		t.Fatal(err)
	}
	if err := w.claims.Release(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
}

func (w *world) remove(t *testing.T, pp *v1alpha1.PeerPod) {
	t.Helper()
	if err := w.client.Delete(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
}

func (w *world) awaitNothing(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if pods, vms := w.peerPods(), w.leaks(); len(pods)+len(vms) > 0 {
			return fmt.Sprint(pods, vms)
		}
		return ""
	})
}

// settings: a missing key is told where the operator looks, and the right one
// is enough.
func (w *world) settings(t *testing.T) {
	w.configure(w.keys(), "")
	pp := w.claimAndCreate(t, "web")
	w.start(t)
	w.remove(t, pp)
	eventually(t, func() string {
		out := w.plane.Kubectl(t, "get", "peerpod", pp.Name, "-o", "yaml")
		if strings.Contains(out, "ProviderNotConfigured") && strings.Contains(out, "FAKE_TOKEN") && strings.Contains(out, "peer-pods-secret") {
			return ""
		}
		return out
	})
	eventually(t, func() string {
		out := w.plane.Kubectl(t, "get", "events", "-A")
		if strings.Contains(out, "configmap/peer-pods-cm") && strings.Contains(out, "FAKE_TOKEN") {
			return ""
		}
		return out
	})
	w.configure(w.keys(), "expired")
	eventually(t, func() string {
		out := w.plane.Kubectl(t, "get", "peerpod", pp.Name, "-o", "yaml")
		if strings.Contains(out, "reason: Unauthenticated") && strings.Contains(out, "hint: renew") {
			return ""
		}
		return out
	})
	w.configure(w.keys(), "right")
	w.awaitNothing(t)
}

// secretGone: what was right before goes on without its Secret, and says so; a
// controller that starts without it removes nothing before it is back.
func (w *world) secretGone(t *testing.T) {
	w.configure(w.keys(), "right")
	first := w.start(t)
	w.remove(t, w.claimAndCreate(t, "configured"))
	w.awaitNothing(t)
	w.plane.Kubectl(t, "delete", "secret", controller.SecretName, "-n", namespace)
	eventually(t, func() string {
		if strings.Contains(w.plane.Kubectl(t, "get", "events", "-A"), "there is no Secret peer-pods-secret") {
			return ""
		}
		return "no Event on the ConfigMap"
	})
	w.remove(t, w.claimAndCreate(t, "goes-on"))
	w.awaitNothing(t)
	first.kill()
	pp := w.claimAndCreate(t, "waits")
	w.remove(t, pp)
	w.start(t)
	eventually(t, func() string {
		out := w.plane.Kubectl(t, "get", "peerpod", pp.Name, "-o", "yaml")
		if strings.Contains(out, "ProviderNotConfigured") && strings.Contains(out, "there is no Secret peer-pods-secret") {
			return ""
		}
		return out
	})
	if len(w.leaks()) != 1 {
		t.Errorf("without credentials instances are %v", w.leaks())
	}
	w.configure(w.keys(), "right")
	w.awaitNothing(t)
}

// outage: the controller lives through the API server's absence.
func (w *world) outage(t *testing.T) {
	w.configure(w.keys(), "right")
	p := w.start(t)
	first := w.claimAndCreate(t, "first")
	w.remove(t, first)
	w.awaitNothing(t)
	second := w.claimAndCreate(t, "second")
	w.restart(t)
	w.insist(func() error { return client.IgnoreNotFound(w.client.Delete(t.Context(), second)) })
	w.awaitNothing(t)
	select {
	case <-p.done:
		t.Errorf("it ended: %s", p.log)
	default:
	}
}

// lease: of two controllers one acts.
func (w *world) lease(t *testing.T) {
	w.configure(w.keys(), "right")
	leader := w.start(t, "-leader-elect")
	eventually(t, func() string {
		if strings.Contains(w.plane.Kubectl(t, "get", "lease", "-n", namespace, "-o", "name"), "33f6c5d6.confidentialcontainers.org") {
			return ""
		}
		return "the lease"
	})
	w.start(t, "-leader-elect")
	w.remove(t, w.claimAndCreate(t, "led"))
	w.awaitNothing(t)
	leader.cmd.Process.Signal(syscall.SIGTERM) // gives the lease back
	leader.exit()
	w.remove(t, w.claimAndCreate(t, "led-again"))
	w.awaitNothing(t)
}
