// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/test/cluster"
)

// Timeout is ten times what any of the waits takes on two idle processors, and
// more.
const Timeout = 4 * time.Minute

// Management is a management cluster.
type Management struct {
	*cluster.ControlPlane
	// Client acts as administrator. It reads from the API server itself.
	Client client.Client

	repository *Repository
	certs      string
	managers   map[string]*Manager
	started    []*Manager
	// services are those of the webhooks of what is wired, by its name.
	services map[string]map[string]any
}

// controllers are those of kube-controller-manager that count here: collection
// of what has no owner any more, removal of namespaces, accounts, and the
// permissions that providers add to core's.
const controllers = "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,clusterrole-aggregation-controller"

// Start starts a management cluster that has no provider yet. Several may run
// at once.
func Start(t testing.TB, r *Repository) *Management {
	t.Helper()
	m := &Management{repository: r, managers: map[string]*Manager{}, services: map[string]map[string]any{}}
	m.ControlPlane = cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{controllers}})
	m.certs = filepath.Join(m.Dir, "webhooks")
	m.Serving(t, m.certs)
	types := runtime.NewScheme()
	err := errors.Join(scheme.AddToScheme(types), clusterv1.AddToScheme(types), infrav1.AddToScheme(types))
	must(t, err, "learn Cluster API's kinds and ours")
	m.Client, err = client.New(m.RESTConfig(), client.Options{Scheme: types})
	must(t, err, "make a client")
	m.Apply(t, certManager)
	m.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd/issuers.cert-manager.io", "crd/certificates.cert-manager.io")
	return m
}

// certManager is what clusterctl looks for of cert-manager, and where the
// certificates of providers go that nobody reads here.
var certManager = stub("Issuer") + stub("Certificate")

func stub(kind string) string {
	lower := strings.ToLower(kind)
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]ss.cert-manager.io
spec:
  group: cert-manager.io
  names: {kind: %[2]s, listKind: %[2]sList, plural: %[1]ss, singular: %[1]s}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, lower, kind)
}

// Clusterctl runs clusterctl as administrator and returns what it prints;
// failure ends the test.
func (m *Management) Clusterctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := m.TryClusterctl(nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryClusterctl returns what clusterctl prints with these variables added, and
// as error what it complains about.
func (m *Management) TryClusterctl(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(m.repository.programs, "clusterctl"), append([]string{"--config", m.repository.config}, args...)...)
	// Nothing of the user's: neither overrides nor a look for newer versions.
	cmd.Env = append(os.Environ(), "GOGC=400", "HOME="+m.Dir, "XDG_CONFIG_HOME="+m.Dir, "KUBECONFIG="+m.Kubeconfig)
	cmd.Env = append(append(cmd.Env, m.repository.Env()...), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("clusterctl %s: %w: %s%s", strings.Join(args, " "), err, &stderr, &stdout)
	}
	return stdout.String(), nil
}

// Init installs core, the kubeadm providers and the named infrastructure
// providers with clusterctl, and runs their managers.
func (m *Management) Init(t testing.TB, infrastructure ...string) {
	t.Helper()
	args := []string{"init", "--core", "cluster-api", "--bootstrap", "kubeadm", "--control-plane", "kubeadm"}
	for _, name := range infrastructure {
		args = append(args, "--infrastructure", name)
	}
	m.Clusterctl(t, args...)
	m.RunAll(t)
}

// Eventually repeats a question until it is answered with true or the test has
// waited long enough; the error is what is missing.
func Eventually(t testing.TB, what string, ask func(context.Context) error) {
	t.Helper()
	EventuallyIn(t, Timeout, what, ask)
}

// EventuallyIn is [Eventually] for what may take so long.
func EventuallyIn(t testing.TB, timeout time.Duration, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", timeout, what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
