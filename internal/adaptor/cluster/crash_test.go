// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/adaptor"
	"github.com/outrigger/outrigger/internal/adaptor/adaptortest"
	"github.com/outrigger/outrigger/internal/adaptor/crashtest"
	"github.com/outrigger/outrigger/internal/peerpod"
	"github.com/outrigger/outrigger/provider/fake"
)

// These make the test binary run an adaptor in a folder, with an API server.
const (
	childEnv  = "OUTRIGGER_TEST_CLUSTER_ADAPTOR"
	serverEnv = "OUTRIGGER_TEST_API_SERVER"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := runChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(dir, "cloud")})
	if err != nil {
		return err
	}
	joined, err := New(Options{
		Config:   &rest.Config{Host: os.Getenv(serverEnv), QPS: -1},
		NodeName: nodeName, Owner: "child", Provider: "fake", Limit: -1, MinRetry: time.Millisecond,
	})
	if err != nil {
		return err
	}
	service, err := adaptor.New(adaptor.Options{
		Provider: cloud, ProviderName: "fake", Cluster: joined,
		Network: &adaptortest.Network{Dir: filepath.Join(dir, "network")},
		Relay:   &adaptortest.Relay{Dir: filepath.Join(dir, "relay")},
		VNIs:    &adaptortest.VNIs{Min: 1}, MinVNI: 1,
		TLS:        adaptor.TLS{Issue: adaptortest.Issue},
		PodsDir:    filepath.Join(dir, "pods"),
		ListSettle: time.Nanosecond, MinBackoff: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Hook: crashtest.HookFromEnv(),
	})
	if err != nil {
		return err
	}
	if err := service.Recover(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); joined.Run(ctx) }()
	if err := serveChild(ctx, service, filepath.Join(dir, "hypervisor.sock")); err != nil {
		return err
	}
	err = service.Close(context.Background())
	<-done
	return err
}

func serveChild(ctx context.Context, service *adaptor.Service, socket string) error {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	service.Register(server)
	go server.Serve(ctx, listener)
	<-ctx.Done()
	return server.Close()
}

// crashWorld is a folder with a fake cloud, network and relay, and an API
// server that outlives the adaptor.
type crashWorld struct {
	t      *testing.T
	dir    string
	server string
	pods   *peerpod.REST
}

func newCrashWorld(t *testing.T) crashtest.World {
	api := newFakeAPI(t)
	api.put("/api/v1/namespaces/default/pods/crash", map[string]any{
		"metadata": map[string]any{"name": "crash", "namespace": namespace}, "spec": map[string]any{"nodeName": nodeName},
	})
	config := api.serve()
	pods, err := peerpod.NewREST(config)
	if err != nil {
		t.Fatal(err)
	}
	w := crashWorld{t: t, dir: tempDir(t), server: config.Host, pods: pods}
	for _, name := range []string{"network", "relay", "netns"} {
		if err := os.Mkdir(filepath.Join(w.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w crashWorld) Command() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+w.dir, serverEnv+"="+w.server)
	return cmd
}

func (w crashWorld) Socket() string { return filepath.Join(w.dir, "hypervisor.sock") }
func (w crashWorld) Netns() string  { return filepath.Join(w.dir, "netns") }

// Instances also checks what must hold at any time: who has an instance has
// claimed it.
func (w crashWorld) Instances() int {
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(w.dir, "cloud")})
	if err != nil {
		w.t.Fatal(err)
	}
	leaks, err := cloud.Leaks()
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, resource := range leaks {
		if resource.Kind == fake.KindInstance {
			n++
		}
	}
	list := w.peerPods()
	if n > 0 && (len(list) != 1 || !hasFinalizer(&list[0]) || list[0].Spec.PodUID == "") {
		w.t.Errorf("%d instance(s) and PeerPods %+v", n, list)
	}
	return n
}

func (w crashWorld) peerPods() []v1alpha1.PeerPod {
	list, err := w.pods.OfNode(context.Background(), nodeName)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func (w crashWorld) Leftovers() []string {
	var left []string
	for _, pattern := range []string{"pods/*", "network/*", "relay/*"} {
		found, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		left = append(left, found...)
	}
	for _, pp := range w.peerPods() {
		left = append(left, "PeerPod "+pp.Name)
	}
	return left
}

// TestKilledBetweenAnyTwoSteps: at no time is there an instance without a
// PeerPod, and in the end there is neither.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	crashtest.Run(t, newCrashWorld)
}
