// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// Images of tests: a machine that has the node agent, a shell and a server of
// HTTP, and the default load balancer.
const (
	nodeImage     = "test/node:v1.36.3"
	balancerImage = "test/loadbalancer:latest"
)

func importImages(t testing.TB, e *dockerd.Engine) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, e)
		}
	})
	e.Import(t, nodeImage, map[string]string{
		"node-agent": stand.Binary(t, "node-agent"), "bin/busybox": "/bin/busybox", "bin/sh": "->busybox",
	}, `ENTRYPOINT ["/node-agent"]`)
	e.Import(t, balancerImage, map[string]string{"cluster-loadbalancer": stand.Binary(t, "cluster-loadbalancer")}, `ENTRYPOINT ["/cluster-loadbalancer"]`)
}

// showLogs logs what containers have written.
func showLogs(t testing.TB, e *dockerd.Engine) {
	names, _ := e.Containers()
	for _, name := range names {
		t.Logf("log of %s:\n%q", name, logsOf(t, e, strings.TrimPrefix(name, "/")))
	}
}

// logsOf are the last lines that a container has written.
func logsOf(t testing.TB, e *dockerd.Engine, name string) string {
	logs, err := e.Client.ContainerLogs(context.WithoutCancel(t.Context()), name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "40"})
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(logs)
	return string(text)
}

func testConfig(e *dockerd.Engine) Config {
	return Config{Host: e.Host, NodeImage: "test/node", LoadBalancerImage: balancerImage}
}

func open(t testing.TB, c Config) *Backend {
	t.Helper()
	b, err := New(c, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// userData has a machine serve its name over HTTP where API servers are.
const userData = `## template: jinja
#cloud-config
write_files:
- path: /www/index.html
  content: "{{ ds.meta_data.local_hostname }}\n"
- path: /etc/node-agent/services/http.json
  content: '{"command": ["/bin/busybox", "httpd", "-f", "-p", "6443", "-h", "/www"], "needs": ["/var/lib/joined"]}'
runcmd:
- echo ran >> /var/lib/ran
- [/bin/busybox, touch, /var/lib/joined]
`

// world is what the reconciler would hold.
type world struct {
	cluster *clusterv1.Cluster
	infra   *infrav1.DockerCluster
	// machines by name
	machines map[string]*reconciler.MachineScope
}

func newWorld(namespace, name string) *world {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	infra := &infrav1.DockerCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return &world{cluster: cluster, infra: infra, machines: map[string]*reconciler.MachineScope{}}
}

// withRanges gives the cluster ranges of pods and Services, separated by spaces.
func (w *world) withRanges(pods, services string) *world {
	ranges := &w.cluster.Spec.ClusterNetwork
	ranges.Pods.CIDRBlocks, ranges.Services.CIDRBlocks = strings.Fields(pods), strings.Fields(services)
	return w
}

func (w *world) key() string { return "key-of-" + w.infra.Namespace + "-" + w.infra.Name }

func (w *world) clusterScope() *reconciler.ClusterScope {
	return &reconciler.ClusterScope{Cluster: w.cluster, Infra: w.infra, Key: w.key()}
}

// add adds a machine whose object is there, and nothing else yet.
func (w *world) add(name string, controlPlane bool) *reconciler.MachineScope {
	meta := metav1.ObjectMeta{Namespace: w.infra.Namespace, Name: name}
	m := &clusterv1.Machine{ObjectMeta: meta}
	m.Spec.Version = "v1.36.3"
	s := &reconciler.MachineScope{
		Cluster: w.cluster, Machine: m, InfraCluster: w.infra, Infra: &infrav1.DockerMachine{ObjectMeta: meta},
		Key: w.key() + "-" + name, ClusterKey: w.key(), Began: time.Now(),
		Bootstrap: []byte(userData), Format: reconciler.FormatCloudConfig, ControlPlane: controlPlane,
	}
	w.machines[name] = s
	return s
}

func specOf(s *reconciler.MachineScope) *infrav1.DockerMachineSpec {
	return &s.Infra.(*infrav1.DockerMachine).Spec
}

// patience is far more than anything takes on a busy machine.
const patience = 3 * time.Minute

// eventually asks until the answer is true.
func eventually(t testing.TB, what string, ask func(context.Context) (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for before := ""; ; {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(t.Context()), deadline)
		done, state := ask(ctx)
		cancel()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still %s\nand before that %s", what, state, before)
		}
		before = state
		time.Sleep(20 * time.Millisecond)
	}
}

// ensureCluster reconciles the cluster until it is provisioned, and stores its
// endpoint as the reconciler does.
func (w *world) ensureCluster(t testing.TB, b *Backend) reconciler.ClusterState {
	t.Helper()
	var state reconciler.ClusterState
	eventually(t, "cluster "+w.infra.Name, func(ctx context.Context) (bool, string) {
		var err error
		state, err = b.EnsureCluster(ctx, w.clusterScope())
		return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
	})
	w.infra.Spec.ControlPlaneEndpoint = state.Endpoint
	return state
}

// ensure reconciles a machine until it is provisioned, and stores its providerID.
func (w *world) ensure(t testing.TB, b *Backend, s *reconciler.MachineScope) reconciler.MachineState {
	t.Helper()
	var state reconciler.MachineState
	eventually(t, "machine "+s.Infra.GetName(), func(ctx context.Context) (bool, string) {
		var err error
		state, err = b.EnsureMachine(ctx, s)
		return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
	})
	specOf(s).ProviderID = state.ProviderID
	return state
}

func deleteMachine(t testing.TB, b *Backend, s *reconciler.MachineScope) {
	t.Helper()
	eventually(t, "deletion of "+s.Infra.GetName(), func(ctx context.Context) (bool, string) {
		gone, err := b.DeleteMachine(ctx, &reconciler.MachineScope{Infra: s.Infra, Key: s.Key})
		return gone && err == nil, fmt.Sprint(gone, err)
	})
}

func (w *world) deleteCluster(t testing.TB, b *Backend) {
	t.Helper()
	eventually(t, "deletion of "+w.infra.Name, func(ctx context.Context) (bool, string) {
		gone, err := b.DeleteCluster(ctx, &reconciler.ClusterScope{Infra: w.infra, Key: w.key()})
		return gone && err == nil, fmt.Sprint(gone, err)
	})
}

// get asks over HTTP, with a connection of its own.
func get(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return strings.TrimSpace(string(text)), err
}

func endpointOf(w *world) string {
	e := w.infra.Spec.ControlPlaneEndpoint
	return net.JoinHostPort(e.Host, fmt.Sprint(e.Port))
}

// answers waits until an address replies with a name.
func answers(t testing.TB, address, want string) {
	t.Helper()
	eventually(t, "an answer of "+want+" at "+address, func(ctx context.Context) (bool, string) {
		got, err := get(ctx, address)
		return got == want, fmt.Sprintf("%q, %v", got, err)
	})
}

// inventory is everything that an engine has but images.
func inventory(t testing.TB, e *dockerd.Engine) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
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
