// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// providerLabel is on what clusterctl installs, with the provider as value.
const providerLabel = "cluster.x-k8s.io/provider"

// standard are the programs of the providers that everybody uses.
var standard = map[string]string{
	"cluster-api": "core", "bootstrap-kubeadm": "kubeadm-bootstrap", "control-plane-kubeadm": "kubeadm-control-plane",
}

// keeper does for Deployments of providers what a kubelet does: it keeps one
// process for each.
type keeper struct {
	t          *stand.Session
	m          *capi.Management
	dir, certs string
	programs   map[string]string // by provider
	managers   map[string]*manager
}

// manager is the process of a Deployment.
type manager struct {
	provider                 string
	health, metrics, webhook string // ports
	generation               int64
	process                  *os.Process
	ended                    chan struct{}
	started                  time.Time
	ready                    bool
}

// look compares what is asked for with what runs.
func (k *keeper) look(ctx context.Context) {
	var list appsv1.DeploymentList
	if err := k.m.Client.List(ctx, &list, client.HasLabels{providerLabel}); err != nil {
		if ctx.Err() == nil {
			k.t.Fatalf("list Deployments: %v", err)
		}
		return
	}
	wanted := map[string]bool{}
	for i := range list.Items {
		d := &list.Items[i]
		name := d.Labels[providerLabel]
		if wanted[name] = true; k.programs[name] == "" {
			continue // somebody else runs it
		}
		k.keep(ctx, d)
	}
	for name, m := range k.managers {
		if !wanted[name] {
			m.stop()
			delete(k.managers, name)
		}
	}
}

// pause is how long a process that ended is left alone.
const pause = time.Second

func (k *keeper) keep(ctx context.Context, d *appsv1.Deployment) {
	name := d.Labels[providerLabel]
	m := k.managers[name]
	if m == nil {
		m = &manager{provider: name, health: cluster.HoldPort(k.t), metrics: cluster.HoldPort(k.t), webhook: cluster.HoldPort(k.t)}
		k.managers[name] = m
		k.t.Cleanup(m.stop)
	}
	switch {
	case m.process != nil && m.generation != d.Generation:
		m.stop()
	case m.process != nil && m.over():
		fmt.Printf("management: %s ended: see %s\n", name, k.log(name))
		m.process = nil
		m.tell(ctx, k, d, false)
	case m.process == nil && time.Since(m.started) > pause:
		k.launch(ctx, m, d)
	case m.process != nil && !m.ready && m.answers(ctx):
		fmt.Printf("management: %s is ready\n", name)
		m.tell(ctx, k, d, true)
	}
}

func (k *keeper) log(provider string) string { return filepath.Join(k.dir, provider+".log") }

func (k *keeper) launch(ctx context.Context, m *manager, d *appsv1.Deployment) {
	m.started, m.ready, m.generation = time.Now(), false, d.Generation
	pod := d.Spec.Template.Spec
	if !k.wire(m) {
		return
	}
	account := k.m.ServiceAccount(k.t, d.Namespace, pod.ServiceAccountName)
	log, err := os.OpenFile(k.log(m.provider), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(k.programs[m.provider], slices.Concat(pod.Containers[0].Args, []string{
		"--kubeconfig=" + account.Kubeconfig, "--leader-elect=false",
		"--webhook-cert-dir=" + k.certs, "--webhook-port=" + m.webhook, "--health-addr=127.0.0.1:" + m.health,
		"--diagnostics-address=127.0.0.1:" + m.metrics, "--insecure-diagnostics",
	})...)
	cmd.Env = append(os.Environ(), k.variables(ctx, d.Namespace, pod.Containers[0])...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		k.t.Fatalf("run %s: %v", m.provider, err)
	}
	ended := make(chan struct{})
	m.process, m.ended = cmd.Process, ended
	go func() { cmd.Wait(); close(ended) }()
	k.write(m.provider+".pid", 0o600, strconv.Itoa(cmd.Process.Pid)+"\n")
}

// wire leads the provider's webhooks here, unless somebody else is writing the
// same objects: then it is tried again.
func (k *keeper) wire(m *manager) bool {
	quiet := stand.NewSession(k.t.Context(), "webhooks")
	quiet.Stderr = io.Discard
	return quiet.Try(func() { k.m.Wire(quiet, m.provider, m.webhook) })
}

// variables are those of a container that do not depend on its pod.
func (k *keeper) variables(ctx context.Context, namespace string, c corev1.Container) []string {
	env := []string{"POD_NAMESPACE=" + namespace}
	for _, from := range c.EnvFrom {
		var secret corev1.Secret
		if from.SecretRef == nil || k.m.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: from.SecretRef.Name}, &secret) != nil {
			continue // optional
		}
		for name, value := range secret.Data {
			env = append(env, name+"="+string(value))
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

func (m *manager) over() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// answers reports whether the process is ready, its webhooks included.
func (m *manager) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+m.health+"/readyz", nil)
	if err != nil {
		return false
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// tell writes the Deployment's status, for those who wait for it.
func (m *manager) tell(ctx context.Context, k *keeper, d *appsv1.Deployment, ready bool) {
	m.ready = ready
	before := client.MergeFrom(d.DeepCopy())
	status, count := corev1.ConditionFalse, int32(0)
	if ready {
		status, count = corev1.ConditionTrue, 1
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: count, AvailableReplicas: count,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status, Reason: "Process"}},
	}
	if err := k.m.Client.Status().Patch(ctx, d, before); client.IgnoreNotFound(err) != nil {
		k.t.Fatalf("write the status of %s: %v", d.Name, err)
	}
}

func (m *manager) stop() {
	if m.process == nil {
		return
	}
	m.process.Signal(syscall.SIGTERM)
	select {
	case <-m.ended:
	case <-time.After(15 * time.Second):
		m.process.Kill()
		<-m.ended
	}
	m.process, m.started = nil, time.Time{}
}

func (k *keeper) path(name string) string { return filepath.Join(k.dir, name) }

// write writes a file that goes when the cluster does.
func (k *keeper) write(name string, mode os.FileMode, text string) {
	path := k.path(name)
	if _, err := os.Stat(path); err != nil {
		k.t.Cleanup(func() { os.Remove(path) })
	}
	fresh := path + ".new"
	os.Remove(fresh) // a mode is only for a new file
	if err := os.WriteFile(fresh, []byte(text), mode); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		k.t.Fatal(err)
	}
}
