// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

const ccmHead = `
## Nodes of a cloud controller manager

` + "`cloud-controller-manager`" + ` with its own defaults at a real API server; the cloud is simulated, a
process plugin. From the answer to the creation of a Node to the event that its taint is gone. One
run on %s, %d processors%s.

| what | p50 | p99 | longest |
|---|---|---|---|
`

// nodesAtOnce is how many Nodes a large cluster has that comes up.
const nodesAtOnce = 500

// nodes is a cluster of Node objects.
type nodes struct {
	client kubernetes.Interface
	mu     sync.Mutex
	made   map[string]time.Time
	done   map[string]time.Time
	change chan struct{}
}

// ccm is a table of its own.
func ccm(t *testing.T, runs int) measured {
	api := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{"--controllers=*,-node-lifecycle-controller"}})
	dir := filepath.Join(t.TempDir(), "cloud")
	singles, many := names("single", runs), names("many", nodesAtOnce)
	populate(t, dir, append(slices.Clone(singles), many...))
	program := stand.Binary(t, "cloud-controller-manager")
	pid := startCCM(t, program, dir, api.Kubeconfig)
	config := rest.CopyConfig(api.RESTConfig())
	config.QPS, config.Burst = 1000, 1000
	n := &nodes{client: kubernetes.NewForConfigOrDie(config), made: map[string]time.Time{}, done: map[string]time.Time{}, change: make(chan struct{}, 1)}
	n.watch(t)
	n.create(t, "warm-up") // has no instance: it only shows that the manager works
	time.Sleep(5 * time.Second)
	for _, name := range singles {
		n.create(t, name)
		n.await(t, name)
	}
	idle := rss(t, pid)
	var group sync.WaitGroup
	for worker := range 20 {
		group.Go(func() {
			for i := worker; i < len(many); i += 20 {
				n.create(t, many[i])
			}
		})
	}
	group.Wait()
	n.await(t, many...)
	table := fmt.Sprintf(ccmHead, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), busy())
	table += n.line(fmt.Sprintf("one Node at a time, %d times", runs), singles) + n.line(fmt.Sprintf("%d Nodes at once", nodesAtOnce), many)
	table += fmt.Sprintf("\nThe program is %s%s. Resident: %s, with %d Nodes %s.\n", mib(size(t, program)), linkage(t, program), mib(idle), nodesAtOnce, mib(rss(t, pid)))
	return measured{table: table}
}

func names(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s-%d", prefix, i))
	}
	return all
}

func populate(t *testing.T, dir string, all []string) {
	t.Helper()
	cloud, err := fake.New(fake.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		tags := map[string]string{provider.TagCluster: "bench", provider.TagKey: name, provider.TagPod: name}
		if _, err := cloud.CreateInstance(t.Context(), name, name, cloudinit.Raw("x"), provider.InstanceTypeSpec{Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
}

func startCCM(t *testing.T, program, cloud, kubeconfig string) int {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "fake")
	build := exec.Command("go", "build", "-trimpath", "-o", plugin, "./test/capi/fakecloud")
	build.Dir, build.Env = stand.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the cloud: %v\n%s", err, out)
	}
	data, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	cmd := exec.Command(program, "--cloud-provider=fake", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--instance-tags=outrigger-cluster=bench")
	cmd.Env = append(os.Environ(), "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH="+plugin,
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH="+hex.EncodeToString(sum[:]), "FAKE_DIR="+cloud)
	log := filepath.Join(t.TempDir(), "ccm.log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stand.ShowOnFailure(t, log)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
	return cmd.Process.Pid
}

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

func (n *nodes) create(t *testing.T, name string) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: uninitialized, Effect: v1.TaintEffectNoSchedule}}}}
	if _, err := n.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Error(err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made[name] = time.Now()
}

// watch notes when a Node has lost its taint.
func (n *nodes) watch(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := n.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); w.Stop() })
	go func() {
		for e := range w.ResultChan() {
			if node, ok := e.Object.(*v1.Node); ok && e.Type == watch.Modified && node.Spec.ProviderID != "" {
				n.initialized(node.Name)
			}
		}
	}()
}

func (n *nodes) initialized(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, before := n.done[name]; !before {
		n.done[name] = time.Now()
	}
	select {
	case n.change <- struct{}{}:
	default:
	}
}

func (n *nodes) await(t *testing.T, all ...string) {
	t.Helper()
	late := time.After(5 * time.Minute)
	for {
		n.mu.Lock()
		missing := slices.ContainsFunc(all, func(name string) bool { _, ok := n.done[name]; return !ok })
		n.mu.Unlock()
		if !missing {
			return
		}
		select {
		case <-n.change:
		case <-late:
			t.Fatalf("not all of %d Nodes are initialized in 5 minutes", len(all))
		}
	}
}

func (n *nodes) line(what string, all []string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var took []time.Duration
	for _, name := range all {
		took = append(took, max(0, n.done[name].Sub(n.made[name])))
	}
	slices.Sort(took)
	at := func(share float64) string {
		return took[int(share*float64(len(took)-1))].Round(100 * time.Microsecond).String()
	}
	return fmt.Sprintf("| %s | %s | %s | %s |\n", what, at(0.5), at(0.99), at(1))
}
