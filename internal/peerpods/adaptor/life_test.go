// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/crashtest"
)

func TestLifeOfASandbox(t *testing.T) {
	s := newStand(t, nil)
	socket := s.create("a1")
	if want := filepath.Join(s.opts.PodsDir, "a1", "agent.ttrpc"); socket != want {
		t.Errorf("agent socket %q, want %q", socket, want)
	}
	if s.cloud.Calls(fake.OpCreate) != 0 {
		t.Error("CreateVM called the cloud")
	}
	if err := s.start("a1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("after StartVM: %v", err)
	}
	if err := s.start("a1"); err != nil {
		t.Errorf("StartVM of a sandbox that is ready: %v", err)
	}
	list := s.sandboxes()
	if len(list) != 1 {
		t.Fatalf("%d sandboxes", len(list))
	}
	got := list[0]
	want := &adaptorpb.Sandbox{
		Id: "a1", PodName: "pod-a1", PodNamespace: "default", Step: "ready", State: "ready",
		InstanceId: "fake-000001", InstanceName: "podvm-pod-a1-a1", Addresses: []string{"198.18.0.2"},
		AgentSocket: socket, Clients: 1, CreatedUnixNano: got.CreatedUnixNano,
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("sandbox (-want +got):\n%s", diff)
	}
	s.stop("a1")
	s.wantNothing()
	s.stop("a1")
	s.stop("never-heard-of")
}

func TestInstanceCarriesOwnerAndSize(t *testing.T) {
	s := newStand(t, nil)
	req := s.request("b1")
	req.Annotations["io.katacontainers.config.hypervisor.default_vcpus"] = "2.5"
	req.Annotations["io.katacontainers.config.hypervisor.default_memory"] = "6000"
	if _, err := s.CreateVM(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := s.start("b1"); err != nil {
		t.Fatal(err)
	}
	tags := s.instances()[0].Tags
	created := tags[provider.TagCreated]
	if _, err := time.Parse(time.RFC3339, created); err != nil {
		t.Error(err)
	}
	want := map[string]string{
		provider.TagCluster: "here", provider.TagNode: "node1", provider.TagKey: "b1",
		provider.TagPod: "pod-b1", provider.TagNamespace: "default", provider.TagCreated: created,
	}
	if diff := cmp.Diff(want, tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	console, err := s.Console(t.Context(), &adaptorpb.ConsoleRequest{Id: "b1"})
	if err != nil || !strings.Contains(string(console.GetData()), "fake.medium") {
		t.Errorf("3 vCPUs and 6000 MiB did not give fake.medium: %v, %q", err, console.GetData())
	}
}

// TestKeysStayWhereTheyBelong looks at both halves of a sandbox's identity.
func TestKeysStayWhereTheyBelong(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(auth, []byte(`{"auths":{"registry.example":{"auth":"eDp5"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	initdata := "algorithm = \"sha256\"\nversion = \"0.1.0\"\n[data]\n\"aa.toml\" = \"\"\n"
	s := newStand(t, func(s *stand) { s.opts.AuthFile, s.opts.ScratchSpace = auth, true })
	req := s.request("c1")
	req.Annotations["io.katacontainers.config.hypervisor.cc_init_data"] = initdata
	if _, err := s.CreateVM(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := s.start("c1"); err != nil {
		t.Fatal(err)
	}
	data, err := s.cloud.UserData("fake-000001")
	if err != nil {
		t.Fatal(err)
	}
	files := userDataFiles(t, data)
	cfg, err := apf.Parse([]byte(files[apf.DefaultPath]))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.PodNetwork == nil || cfg.PodNetwork.VXLANID != 555000 || cfg.PodName != "pod-c1" {
		t.Errorf("apf.json: %+v", cfg)
	}
	if cfg.TLSServerKey != "server key of podvm-pod-c1-c1" || cfg.TLSClientCA != "CA of podvm-pod-c1-c1" {
		t.Errorf("apf.json lacks the VM's identity: %+v", cfg)
	}
	for path, want := range map[string]string{"/run/peerpod/auth.json": "registry.example", "/run/peerpod/initdata": "H4sI", "/run/peerpod/scratch-space.marker": ""} {
		if got, ok := files[path]; !ok || !strings.Contains(got, want) {
			t.Errorf("user-data %s = %q, want %q in it", path, got, want)
		}
	}
	checkNodeFiles(t, filepath.Join(s.opts.PodsDir, "c1"))
}

func userDataFiles(t *testing.T, data string) map[string]string {
	t.Helper()
	config, err := cloudinit.Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, file := range config.WriteFiles {
		files[file.Path] = file.Content
	}
	return files
}

// checkNodeFiles checks that the node can reconnect and holds nothing else.
func checkNodeFiles(t *testing.T, dir string) {
	t.Helper()
	record, err := os.ReadFile(filepath.Join(dir, "sandbox.json"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"client key": true, "server key": false, "registry.example": false, "H4sI": false} {
		if strings.Contains(string(record), text) != want {
			t.Errorf("%q in sandbox.json: want %t", text, want)
		}
	}
	filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s, %v", path, info.Mode(), err)
		}
		return err
	})
}

func TestWithoutNetworkNamespaceThereIsNoTunnel(t *testing.T) {
	s := newStand(t, nil)
	req := s.request("d1")
	req.NetworkNamespacePath = ""
	if _, err := s.CreateVM(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := s.start("d1"); err != nil {
		t.Fatal(err)
	}
	if s.network.Tunnels() != 0 || s.vnis.Taken() != 0 {
		t.Error("a sandbox without namespace has a tunnel")
	}
	data, err := s.cloud.UserData("fake-000001")
	if err != nil || strings.Contains(data, "pod-network") {
		t.Errorf("its apf.json has a pod network: %v", err)
	}
	s.stop("d1")
	s.wantNothing()
}

func TestFailuresOfTheCloud(t *testing.T) {
	classes := map[string]struct {
		fault fake.Fault
		want  codes.Code
		hint  string
	}{
		"capacity":        {fake.NoCapacity(), codes.ResourceExhausted, "another instance type"},
		"quota":           {fake.Quota(), codes.ResourceExhausted, "quota"},
		"unauthenticated": {fake.Unauthenticated(fake.OpCreate), codes.Unauthenticated, "credentials"},
		"throttled":       {fake.Throttled(fake.OpCreate).Repeated(-1), codes.Unavailable, "rate of requests"},
		"lost replies":    {fake.LostReply(fake.OpCreate).Repeated(-1), codes.Unavailable, "connection reset"},
		"partly created":  {fake.PartialCreate().Repeated(-1), codes.Unavailable, "address not assigned"},
		"unknown":         {fake.Fail(fake.OpCreate, errors.New("teapot")), codes.Unknown, "teapot"},
	}
	for name, c := range classes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, nil)
			s.create("e1")
			s.cloud.Inject(c.fault)
			err := s.start("e1")
			wantCode(t, err, c.want)
			for _, part := range []string{"start sandbox e1: step create-instance:", c.hint} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error lacks %q: %v", part, err)
				}
			}
			s.wantNothing()
			s.stop("e1")
		})
	}
}

func TestLostReplyGivesTheSameInstance(t *testing.T) {
	s := newStand(t, nil)
	s.create("f1")
	s.cloud.Inject(fake.LostReply(fake.OpCreate))
	if err := s.start("f1"); err != nil {
		t.Fatal(err)
	}
	if n := len(s.instances()); n != 1 {
		t.Errorf("%d instances", n)
	}
	if calls := s.cloud.Calls(fake.OpCreate); calls != 2 {
		t.Errorf("%d requests, want a second with the same key", calls)
	}
}

func TestFailureOfTunnelLeavesNothing(t *testing.T) {
	s := newStand(t, nil)
	s.network.SetupErr = func() error { return os.ErrPermission }
	s.create("g1")
	err := s.start("g1")
	if err == nil || !strings.Contains(err.Error(), "step tunnel") || !strings.Contains(err.Error(), "NET_ADMIN") {
		t.Errorf("error %v", err)
	}
	s.wantNothing()
}

// TestVMThatIsLateShowsItsConsole: what --boot-timeout ends says so, and how far the VM came.
func TestVMThatIsLateShowsItsConsole(t *testing.T) {
	s := newStand(t, nil)
	s.relay.ServeErr = func(ctx context.Context, _ *relaypb.ServeRequest) error {
		s.cloud.WriteConsole("fake-000001", []byte("Loading modules\n"))
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	s.create("h2")
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := s.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: "h2"})
	wantCode(t, err, codes.DeadlineExceeded)
	for _, part := range []string{"not ready within the 400ms that the caller gave it", "Loading modules"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	s.wantNothing()
}

func TestVMThatNeverAnswersShowsItsConsole(t *testing.T) {
	s := newStand(t, nil)
	s.relay.ServeErr = func(context.Context, *relaypb.ServeRequest) error {
		s.cloud.WriteConsole("fake-000001", []byte("\x1b[0mKernel panic: no init found\r\n"))
		return errors.New("no answer within 5m0s")
	}
	s.create("h1")
	err := s.start("h1")
	for _, part := range []string{"step connect", "198.18.0.2:15150", "no answer within 5m0s", "-proxy-timeout", "Kernel panic: no init found"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	if strings.ContainsAny(err.Error(), "\x1b\r") {
		t.Errorf("control characters in %q", err)
	}
	s.wantNothing()
}

func TestStopDuringCreateCancelsIt(t *testing.T) {
	s := newStand(t, nil)
	blocked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(blocked)
	s.create("i1")
	started := make(chan error, 1)
	go func() { started <- s.start("i1") }()
	<-gate.Reached()
	wantCode(t, s.start("i1"), codes.FailedPrecondition)
	s.stop("i1")
	s.wantNothing()
	wantCode(t, <-started, codes.Aborted)
	s.create("i1") // the id is free again
}

func TestStopDuringConnectDeletesTheInstance(t *testing.T) {
	s := newStand(t, nil)
	dialling := make(chan struct{})
	s.relay.ServeErr = func(ctx context.Context, _ *relaypb.ServeRequest) error {
		close(dialling)
		<-ctx.Done()
		return ctx.Err()
	}
	s.create("j1")
	started := make(chan error, 1)
	go func() { started <- s.start("j1") }()
	<-dialling
	s.stop("j1")
	wantCode(t, <-started, codes.Aborted)
	s.wantNothing()
}

func TestCallerThatGoesAwayCancelsStart(t *testing.T) {
	s := newStand(t, nil)
	blocked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(blocked)
	s.create("k1")
	ctx, leave := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		_, err := s.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: "k1"})
		started <- err
	}()
	<-gate.Reached()
	leave()
	if err := <-started; err == nil || !strings.Contains(err.Error(), "caller went away") {
		t.Errorf("error %v", err)
	}
	s.wantNothing()
}

func TestDeletionIsTriedUntilDone(t *testing.T) {
	s := newStand(t, nil)
	s.run("l1")
	s.cloud.Inject(fake.Throttled(fake.OpDelete).Repeated(3), fake.PartialDelete())
	s.stop("l1")
	s.wantNothing()
	if calls := s.cloud.Calls(fake.OpDelete); calls != 5 {
		t.Errorf("%d deletions, want 5", calls)
	}
}

func TestStopDoesNotWaitForASlowCloud(t *testing.T) {
	s := newStand(t, func(s *stand) { s.opts.StopGrace = time.Millisecond })
	s.run("m1")
	blocked, gate := fake.Block(fake.OpDelete)
	s.cloud.Inject(blocked)
	s.stop("m1")
	if list := s.sandboxes(); len(list) != 1 || list[0].State != "stopping" {
		t.Errorf("sandboxes %v", list)
	}
	record, err := os.ReadFile(filepath.Join(s.opts.PodsDir, "m1", "sandbox.json"))
	if err != nil || !strings.Contains(string(record), `"state": "stopping"`) {
		t.Errorf("the removal is not on record: %v, %s", err, record)
	}
	_, err = s.CreateVM(t.Context(), s.request("m1"))
	wantCode(t, err, codes.AlreadyExists)
	gate.Open()
	s.wantNothing()
}

func TestShutdownKeepsWhatIsReady(t *testing.T) {
	s := newStand(t, nil)
	s.run("n1")
	s.create("n2")
	blocked, gate := fake.Block(fake.OpCreate)
	s.cloud.Inject(blocked)
	started := make(chan error, 1)
	go func() { started <- s.start("n2") }()
	<-gate.Reached()
	service := s.Service
	s.close()
	wantCode(t, <-started, codes.Aborted)
	if _, err := service.CreateVM(t.Context(), s.request("n3")); err == nil {
		t.Error("CreateVM after Close succeeded")
	}
	s.open()
	s.eventually("only n1", func() bool { return len(s.sandboxes()) == 1 })
	if got := s.sandboxes()[0]; got.Id != "n1" || got.State != "ready" {
		t.Errorf("kept %v", got)
	}
	if n := len(s.instances()); n != 1 || s.relay.Served() != 1 || s.network.Tunnels() != 1 {
		t.Errorf("%d instances, %d served, %d tunnels", n, s.relay.Served(), s.network.Tunnels())
	}
}

func TestUnwritableRecordLeavesNothing(t *testing.T) {
	s := newStand(t, nil)
	// A folder in the way of the record stands for a full disk.
	if err := os.MkdirAll(filepath.Join(s.opts.PodsDir, "o1", "sandbox.json.new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := s.CreateVM(t.Context(), s.request("o1"))
	if err == nil || !strings.Contains(err.Error(), "step record-intent") {
		t.Errorf("error %v", err)
	}
	s.wantNothing()
}

func TestVersionAndInfo(t *testing.T) {
	s := newStand(t, nil)
	version, err := s.Version(t.Context(), &hypervisorpb.VersionRequest{})
	if err != nil || version.GetVersion() != "0.0.0" {
		t.Errorf("Version: %v, %v", version, err)
	}
	info, err := s.Info(t.Context(), &adaptorpb.InfoRequest{})
	if err != nil || info.GetProvider() != "fake" || info.GetPid() != int32(os.Getpid()) {
		t.Errorf("Info: %v, %v", info, err)
	}
	_, err = s.Console(t.Context(), &adaptorpb.ConsoleRequest{Id: "nobody"})
	wantCode(t, err, codes.NotFound)
}

func TestStepsAreNamedInOrder(t *testing.T) {
	var names []string
	for _, p := range crashtest.Points(t) {
		if p.Phase == adaptor.BeforeDo {
			names = append(names, p.Step)
		}
	}
	want := []string{"inspect-network", "choose-zone", "reserve", "record-intent", "claim", "create-instance", "tunnel", "connect", "attach-disks", "ready"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}
