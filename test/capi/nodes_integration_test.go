// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

const (
	// nodeVersion is that of the node image.
	nodeVersion  = "v1.36.3"
	nodesWork    = "work"
	nodeWorkers  = 2
	nodeBalancer = "outrigger/cluster-loadbalancer:test"
	// nodesPatience is far more than anything takes on a busy machine.
	nodesPatience = 10 * time.Minute
)

// nodeArchive returns the node image's file.
func nodeArchive(t *testing.T) string { return imageFile(t, "OUTRIGGER_NODE_IMAGE", "make test-nodes") }

// imageFile returns the file of a node image that a variable names, as a target does.
func imageFile(t *testing.T, variable, target string) string {
	t.Helper()
	file := os.Getenv(variable)
	if file == "" {
		t.Skipf("it wants 2 GB of memory and some minutes: run %s, or set %s to a file that make node-image has written", target, variable)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(stand.Root(), file)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return file
}

// fleet is a management cluster, an engine, and the cluster work there.
type fleet struct {
	m      *capi.Management
	r      *capi.Repository
	engine *dockerd.Daemon
	began  time.Time
	// controlPlanes is how many machines have one.
	controlPlanes int
	// empty is what the engine has before there is a cluster.
	empty    []string
	workload *cluster.User
	kubectl  string
}

// TestNodes is a cluster of one machine with the control plane and two others,
// made from our template as users do. Each step begins with what the one before
// has left.
func TestNodes(t *testing.T) {
	file := nodeArchive(t)
	f := &fleet{controlPlanes: 1, engine: dockerd.StartDaemon(t, dockerd.Options{Storage: "overlay2"})}
	f.load(t, file)
	f.empty = engineInventory(t, f.engine)
	f.manage(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"apply the template", f.apply},
		{"kubectl get nodes", f.nodesReady},
		{"machines are Running", f.machinesRunning},
		{"a pod on each worker", f.pods},
		{"pods reach pods, Services and names", f.traffic},
		{"restart of the engine", f.restart},
		{"a control plane of three", f.three},
		{"delete", f.delete},
	} {
		t.Log(step.name) // no test of its own: alone it could not be run again
		if step.run(t); t.Failed() {
			t.FailNow()
		}
	}
}

// load brings the images into the engine: of nodes, of the load balancer, and
// the one that pods use.
func (f *fleet) load(t *testing.T, nodes ...string) {
	for _, file := range nodes {
		f.engine.Load(t, file)
	}
	f.engine.Import(t, nodeBalancer, map[string]string{"cluster-loadbalancer": stand.Binary(t, "cluster-loadbalancer")}, `ENTRYPOINT ["/cluster-loadbalancer"]`)
	tools := cluster.Tools(t)
	tag, err := name.NewTag(tools.Ref)
	if err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(t.TempDir(), "tools.tar")
	if err := tarball.WriteToFile(packed, tag, tools.Image); err != nil {
		t.Fatal(err)
	}
	f.engine.Load(t, packed)
}

func (f *fleet) manage(t *testing.T) {
	f.r = capi.NewRepository(t)
	f.r.Release(t, "v0.1.0")
	f.m, f.kubectl = capi.Start(t, f.r), filepath.Join(cluster.Programs(t), "kubectl")
	f.m.Init(t, capi.Name)
	f.m.Run(t, capi.Label, capi.Program{Path: stand.Binary(t, "capi-manager"), Args: []string{
		"--provider=", "--docker-host=" + f.engine.Host, "--docker-loadbalancer-image=" + nodeBalancer, "--docker-pull=false",
	}})
}

func (f *fleet) apply(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			f.show(t)
		}
	})
	text := f.m.Generate(t, capi.Wanted{Name: nodesWork, Namespace: metav1.NamespaceDefault, Version: nodeVersion, ControlPlanes: 1, Workers: nodeWorkers})
	preload := strings.ReplaceAll(text, "spec: {}\n", "spec: {preLoadImages: ["+cluster.ToolsImage+"]}\n")
	if preload == text {
		t.Fatalf("the template has no machines without settings:\n%s", text)
	}
	f.began = time.Now()
	f.m.Apply(t, preload)
	capi.EventuallyIn(t, nodesPatience, "the cluster's kubeconfig", f.connect)
	t.Logf("kubeconfig after %s", time.Since(f.began).Round(time.Second))
}

// connect gets the kubeconfig that Cluster API has made for users.
func (f *fleet) connect(ctx context.Context) error {
	var secret corev1.Secret
	if err := f.m.Client.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: nodesWork + "-kubeconfig"}, &secret); err != nil {
		return err
	}
	file := filepath.Join(f.m.Dir, "work.kubeconfig")
	if err := os.WriteFile(file, secret.Data["value"], 0o600); err != nil {
		return err
	}
	f.workload = cluster.Foreign(file, f.kubectl)
	return nil
}

// nodesReady waits until all nodes are Ready, by the eyes of kubectl.
func (f *fleet) nodesReady(t *testing.T) {
	f.await(t, "all nodes to be Ready", func() error {
		out, err := f.workload.TryKubectl("get", "nodes", "--no-headers")
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines {
			if words := strings.Fields(line); len(words) < 5 || words[1] != "Ready" || words[4] != nodeVersion {
				return errors.New(out)
			}
		}
		if len(lines) != f.controlPlanes+nodeWorkers {
			return fmt.Errorf("there are %d nodes:\n%s", len(lines), out)
		}
		return nil
	})
	t.Logf("all Ready after %s:\n%s", time.Since(f.began).Round(time.Second), f.workload.Kubectl(t, "get", "nodes", "-o", "wide"))
}

func (f *fleet) machinesRunning(t *testing.T) {
	f.m.AwaitCluster(t, metav1.NamespaceDefault, nodesWork, nodeVersion, f.controlPlanes, nodeWorkers)
	t.Logf("all machines Running and the cluster Available after %s", time.Since(f.began).Round(time.Second))
}

// await asks until there is no error. When it gives up, it shows what there is.
func (f *fleet) await(t *testing.T, what string, ask func() error) {
	t.Helper()
	defer func() {
		if t.Failed() {
			f.show(t)
		}
	}()
	capi.EventuallyIn(t, nodesPatience, what, func(context.Context) error { return ask() })
}

const nodePods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, nodeTaintsPolicy: Honor}
      containers:
      - name: web
        image: ` + cluster.ToolsImage + `
        imagePullPolicy: Never
        command: [/bin/podtool, serve, ":8080"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {selector: {app: web}, ipFamilyPolicy: PreferDualStack, ports: [{port: 80, targetPort: 8080}]}
`

func (f *fleet) pods(t *testing.T) {
	f.workload.Apply(t, nodePods)
	f.await(t, "a pod on each worker", func() error {
		if _, err := f.workload.TryKubectl("rollout", "status", "deployment/web", "--timeout=5s"); err != nil {
			return err
		}
		on, err := f.web("{.items[*].spec.nodeName}")
		if err == nil && on[0] == on[1] {
			err = fmt.Errorf("both are on %s", on[0])
		}
		return err
	})
}

// web returns something of each of the two pods.
func (f *fleet) web(path string) ([]string, error) {
	out, err := f.workload.TryKubectl("get", "pods", "-l", "app=web", "-o", "jsonpath="+path)
	words := strings.Fields(out)
	if err == nil && len(words) != nodeWorkers {
		err = fmt.Errorf("%s of the pods is %q", path, out)
	}
	return words, err
}

// traffic goes from one pod to the other, which is on another node. After a
// restart the API server tells for a while what was.
func (f *fleet) traffic(t *testing.T) {
	f.await(t, "pods to reach pods, Services and names", func() error {
		names, err := f.web("{.items[*].metadata.name}")
		if err != nil {
			return err
		}
		addresses, err := f.workload.TryKubectl("get", "pod", names[1], "-o", "jsonpath={.status.podIPs[*].ip}")
		if err != nil {
			return err
		}
		for _, address := range strings.Fields(addresses) { // one of each family
			if err := f.says(names[0], "hello from "+names[1], "get", "http://"+net.JoinHostPort(address, "8080")+"/"); err != nil {
				return err
			}
		}
		// A name that the cluster does not have: CoreDNS asks the machine, and
		// that the engine, which knows its containers.
		node, err := f.workload.TryKubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
		return errors.Join(err,
			f.says(names[0], "hello from web-", "get", "http://web.default.svc.cluster.local/"),
			f.says(names[1], "gitVersion", "get", "https://kubernetes.default.svc.cluster.local/version"),
			f.says(names[0], ".", "lookup", strings.TrimSpace(node)+"."))
	})
}

// says runs podtool in a pod.
func (f *fleet) says(pod, want string, args ...string) error {
	out, err := f.workload.TryKubectl(append([]string{"exec", pod, "--", "/bin/podtool"}, args...)...)
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("podtool %v in %s says %q, not %q", args, pod, out, want)
	}
	return err
}

// restart kills the engine: nodes and pods come back.
func (f *fleet) restart(t *testing.T) {
	f.engine.Stop()
	f.engine.Again(t)
	began := time.Now()
	f.nodesReady(t)
	f.traffic(t)
	t.Logf("pods reach each other %s after the engine's return", time.Since(began).Round(time.Second))
}

// three: machines join the control plane and its etcd, by certificates that
// the bootstrap provider hands them.
func (f *fleet) three(t *testing.T) {
	if os.Getenv("OUTRIGGER_CAPI_CONTROL_PLANES") == "" {
		t.Log("left out: it takes a gigabyte of memory and some minutes more: set OUTRIGGER_CAPI_CONTROL_PLANES=1")
		return
	}
	f.controlPlanes, f.began = 3, time.Now()
	f.m.Kubectl(t, "patch", "kubeadmcontrolplane", nodesWork+"-control-plane", "--type=merge", "-p", `{"spec":{"replicas":3}}`)
	f.nodesReady(t)
	f.machinesRunning(t)
	f.traffic(t)
}

func (f *fleet) delete(t *testing.T) {
	began := time.Now()
	f.m.Kubectl(t, "delete", "cluster", nodesWork, "--wait=false")
	f.await(t, "the cluster to be gone", func() error {
		out, err := f.m.TryKubectl("get", "clusters,machines,dockermachines,dockerclusters", "--no-headers", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
	if diff := cmp.Diff(f.empty, engineInventory(t, f.engine)); diff != "" {
		t.Errorf("what the engine has (-before +after):\n%s", diff)
	}
	t.Logf("gone after %s", time.Since(began).Round(time.Second))
}

// show logs how far everything is.
func (f *fleet) show(t *testing.T) {
	out, err := f.m.TryKubectl("get", "clusters,kubeadmcontrolplanes,machines,dockermachines", "-o", "yaml")
	t.Logf("objects: %v\n%s", err, lastOf(out, 20000))
	if f.workload != nil {
		out, err := f.workload.TryKubectl("get", "nodes,pods", "-A", "-o", "wide")
		t.Logf("work: %v\n%s", err, out)
	}
	names, _ := f.engine.Containers()
	for _, name := range names {
		logs, err := f.engine.Client.ContainerLogs(context.Background(), strings.TrimPrefix(name, "/"), client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "300"})
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(logs)
		logs.Close()
		t.Logf("log of %s:\n%s", name, lastOf(string(text), 20000))
	}
}

func lastOf(text string, size int) string { return text[max(0, len(text)-size):] }

// inventory is everything that an engine has but images.
func engineInventory(t *testing.T, e *dockerd.Daemon) []string {
	t.Helper()
	ctx := context.Background()
	list, err := e.Containers()
	if err != nil {
		t.Fatal(err)
	}
	networks, err := e.Client.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks.Items {
		list = append(list, "network "+n.Name)
	}
	volumes, err := e.Client.VolumeList(ctx, client.VolumeListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Items {
		list = append(list, "volume "+v.Name)
	}
	slices.Sort(list)
	return list
}
