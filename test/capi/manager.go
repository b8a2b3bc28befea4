// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// Manager is the manager of a provider as a process.
type Manager struct {
	*stand.Process
	// Metrics is the URL of its metrics, Log its log.
	Metrics, Log string

	health  string
	webhook string
	// host is the API server's address and port, as in metrics.
	host string
}

// Program is what to run for the Deployment of a provider.
type Program struct {
	Path string
	// Args win over those of the Deployment.
	Args, Env []string
}

// known are the programs of the providers that everybody uses, by the label of
// the provider.
var known = map[string]string{
	"cluster-api": "core", "bootstrap-kubeadm": "kubeadm-bootstrap", "control-plane-kubeadm": "kubeadm-control-plane",
}

// RunAll runs the managers of core and of the kubeadm providers.
func (m *Management) RunAll(t testing.TB) {
	t.Helper()
	for provider, program := range known {
		m.start(t, provider, Program{Path: filepath.Join(m.repository.programs, program), Env: []string{"GOGC=400"}})
	}
	for _, manager := range m.managers {
		manager.await(t)
	}
}

// Run runs the manager of an installed provider until the test ends, with the
// arguments and the permissions of its Deployment, and returns when it is
// ready. Webhooks are led to it: of several managers of one provider the last
// answers them, whoever leads.
func (m *Management) Run(t testing.TB, provider string, p Program) *Manager {
	t.Helper()
	manager := m.start(t, provider, p)
	manager.await(t)
	return manager
}

// Manager returns the manager of a provider that runs.
func (m *Management) Manager(provider string) *Manager { return m.managers[provider] }

func (m *Management) start(t testing.TB, provider string, p Program) *Manager {
	t.Helper()
	var found appsv1.DeploymentList
	must(t, m.Client.List(context.Background(), &found, client.MatchingLabels{providerLabel: provider}), "list Deployments")
	if len(found.Items) != 1 {
		t.Fatalf("there are %d Deployments of %s, not one", len(found.Items), provider)
	}
	d := found.Items[0]
	pod := d.Spec.Template.Spec
	account := m.ServiceAccount(t, d.Namespace, pod.ServiceAccountName)
	metrics := "127.0.0.1:" + cluster.HoldPort(t)
	manager := &Manager{
		Log: filepath.Join(m.Dir, fmt.Sprintf("%s-%d.log", provider, len(m.started))), Metrics: "http://" + metrics + "/metrics",
		webhook: cluster.HoldPort(t), health: cluster.HoldPort(t), host: strings.TrimPrefix(m.Server, "https://"),
	}
	m.managers[provider], m.started = manager, append(m.started, manager)
	m.Wire(t, provider, manager.webhook)
	args := slices.Concat(pod.Containers[0].Args, []string{
		"--kubeconfig=" + account.Kubeconfig, "--leader-elect=false",
		"--webhook-cert-dir=" + m.certs, "--webhook-port=" + manager.webhook,
		"--health-addr=127.0.0.1:" + manager.health,
		"--diagnostics-address=" + metrics, "--insecure-diagnostics",
	}, p.Args)
	manager.Process = stand.Start(t, stand.Daemon{
		Path: p.Path, Args: args, Log: manager.Log,
		Env: append([]string{"POD_NAMESPACE=" + d.Namespace}, p.Env...),
	})
	return manager
}

// Kill ends the manager at once.
func (m *Manager) Kill() { m.Stop(syscall.SIGKILL) }

// Return starts it again and waits until it is ready.
func (m *Manager) Return(t testing.TB) {
	t.Helper()
	m.Again(t)
	m.await(t)
}

// await waits until the manager says that it is ready, its webhooks included.
func (m *Manager) await(t testing.TB) {
	t.Helper()
	Eventually(t, "the manager with the log "+m.Log+" to be ready", func(ctx context.Context) error {
		select {
		case <-m.Ended():
			t.Fatalf("the manager ended; see %s", m.Log)
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+m.health+"/readyz", nil)
		if err != nil {
			return err
		}
		r, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("GET /readyz: %s", r.Status)
		}
		return nil
	})
}
