// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/peerpods/relay"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	guestpb "github.com/outrigger/outrigger/internal/protocol/guest"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "oa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestStaleSocketIsReplacedAndServedOneRefused(t *testing.T) {
	path := filepath.Join(shortDir(t), "made", "h.sock")
	first, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("already served by pid %d", os.Getpid())) {
		t.Errorf("a second server: %v", err)
	}
	first.Close() // as a crash does, the file stays
	second, err := listen(path)
	if err != nil {
		t.Fatalf("stale file: %v", err)
	}
	first.remove()
	if _, err := os.Stat(path); err != nil {
		t.Error("the first server removed the second one's socket")
	}
	second.remove()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

func TestTooLongSocketPathIsAnError(t *testing.T) {
	if _, err := listen(filepath.Join(t.TempDir(), strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "-socket") {
		t.Errorf("error %v", err)
	}
}

func TestProbeTellsOnlyOfTheAdaptor(t *testing.T) {
	port := freePort(t)
	p, err := startProbe("127.0.0.1", port, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(context.Background())
	want := func(path string, code int) {
		t.Helper()
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != code {
			t.Errorf("%s answers %d, want %d", path, resp.StatusCode, code)
		}
	}
	want("/startup", 500)
	want("/readyz", 500)
	want("/healthz", 200)
	p.set(true)
	want("/startup", 200)
	want("/readyz", 200)
	p.set(false)
	want("/startup", 200)
	want("/readyz", 500)
	if _, err := startProbe("127.0.0.1", port, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "PROBE_PORT") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("port in use: %v", err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestServiceManagerIsTold(t *testing.T) {
	path := filepath.Join(shortDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := notify(path, "READY=1"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if err := notify("", "READY=1"); err != nil {
		t.Error(err)
	}
}

// relayServer serves the relay protocol on files.
type relayServer struct{ *adaptortest.Relay }

func (r relayServer) Serve(ctx context.Context, req *relaypb.ServeRequest) (*relaypb.ServeResponse, error) {
	return &relaypb.ServeResponse{}, r.Relay.Serve(ctx, req)
}

func (r relayServer) Stop(ctx context.Context, req *relaypb.StopRequest) (*relaypb.StopResponse, error) {
	return &relaypb.StopResponse{}, r.Relay.Stop(ctx, req.GetId())
}

func (r relayServer) List(ctx context.Context, _ *relaypb.ListRequest) (*relaypb.ListResponse, error) {
	list, err := r.Relay.List(ctx)
	return &relaypb.ListResponse{Served: list, Pid: int32(os.Getpid())}, err
}

func (r relayServer) Timeline(ctx context.Context, req *relaypb.TimelineRequest) (*timelinepb.Timeline, error) {
	return r.Relay.Timeline(ctx, req.GetId())
}

func (r relayServer) Attestation(ctx context.Context, req *relaypb.AttestationRequest) (*guestpb.AttestationResponse, error) {
	return r.Relay.Attestation(ctx, req.GetId())
}

// serveRelay returns how to end it.
func serveRelay(t *testing.T, dir string) (stop func()) {
	t.Helper()
	state := filepath.Join(dir, "relay")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "relay.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	relaypb.RegisterRelayService(server, relayServer{&adaptortest.Relay{Dir: state}})
	go server.Serve(context.Background(), listener)
	return func() { server.Close() }
}

// startDaemon runs the adaptor in this process until it serves; the answer
// ends it.
func startDaemon(t *testing.T, dir string, cloud *fake.Cloud) (stop func()) {
	t.Helper()
	env := map[string]string{"PROBE_PORT": "0", "NOTIFY_SOCKET": ""}
	c := &Command{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(name string) string { return env[name] }}
	cfg, err := c.configure("fake", fake.NewManager(), []string{
		"-socket", dir + "/h.sock", "-pods-dir", dir + "/pods", "-relay-path", os.Args[0],
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{cfg: cfg, name: "fake", provider: cloud, log: slog.New(slog.DiscardHandler), getenv: c.Getenv}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	waitServed(t, dir+"/h.sock", ended)
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func waitServed(t *testing.T, path string, ended <-chan error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the daemon ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func dial(t *testing.T, path string) *ttrpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestDaemonOverTheWire takes a sandbox through a restart of the adaptor and
// of the relay, by both names of the service.
func TestDaemonOverTheWire(t *testing.T) {
	dir := shortDir(t)
	stopRelay := serveRelay(t, dir)
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stop := startDaemon(t, dir, cloud)
	client := dial(t, dir+"/h.sock")
	hypervisor := hypervisorpb.NewHypervisorClient(client)
	created, err := hypervisor.CreateVM(t.Context(), &hypervisorpb.CreateVMRequest{Id: "w1", Annotations: map[string]string{
		"io.kubernetes.cri.sandbox-name": "w", "io.kubernetes.cri.sandbox-namespace": "n",
	}})
	if err != nil || created.GetAgentSocketPath() != dir+"/pods/w1/agent.ttrpc" {
		t.Fatalf("CreateVM: %v, %v", created, err)
	}
	// runtime-rs calls the service by this name.
	if err := client.Call(t.Context(), "remote.Hypervisor", "StartVM", &hypervisorpb.StartVMRequest{Id: "w1"}, &hypervisorpb.StartVMResponse{}); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := os.Stat(dir + "/h.sock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	stop = startDaemon(t, dir, cloud)
	defer stop()
	client = dial(t, dir+"/h.sock")
	list, err := adaptorpb.NewAdaptorClient(client).ListSandboxes(t.Context(), &adaptorpb.ListSandboxesRequest{})
	if err != nil || len(list.GetSandboxes()) != 1 || list.GetSandboxes()[0].GetState() != "ready" {
		t.Errorf("after a restart: %v, %v", list, err)
	}
	stopRelay()
	defer serveRelay(t, dir)()
	if _, err := hypervisorpb.NewHypervisorClient(client).StopVM(t.Context(), &hypervisorpb.StopVMRequest{Id: "w1"}); err != nil {
		t.Errorf("StopVM after the relay was restarted: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if leaks, _ := cloud.Leaks(); len(leaks) == 0 {
			break
		}
	}
	if leaks, _ := cloud.Leaks(); len(leaks) > 0 {
		t.Errorf("left in the cloud: %v", leaks)
	}
}

// TestRelayOfSomebodyElse is waited for, at the start and when it goes away.
func TestRelayOfSomebodyElse(t *testing.T) {
	dir := shortDir(t)
	link := &relayLink{log: slog.New(slog.DiscardHandler), external: true, opts: relay.EnsureOptions{Socket: dir + "/relay.sock"}}
	defer link.close()
	short, cancel := context.WithTimeout(t.Context(), 2*dialInterval)
	defer cancel()
	if _, err := link.List(short); err == nil || !strings.Contains(err.Error(), "RELAY_EXTERNAL") {
		t.Errorf("without a relay: %v", err)
	}
	awaited := make(chan error, 1)
	go func() { awaited <- link.await(t.Context()) }()
	stop := serveRelay(t, dir)
	if err := <-awaited; err != nil {
		t.Fatal(err)
	}
	stop()
	os.Remove(dir + "/relay.sock")
	defer serveRelay(t, dir)()
	if _, err := link.List(t.Context()); err != nil {
		t.Errorf("after the relay was replaced: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := (&relayLink{log: link.log, external: true, opts: relay.EnsureOptions{Socket: dir + "/none"}}).await(ended); err == nil {
		t.Error("await goes on after its context")
	}
}
