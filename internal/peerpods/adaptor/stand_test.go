// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// stand is an adaptor in this process on a fake cloud, network and relay.
type stand struct {
	*adaptor.Service
	t       testing.TB
	dir     string
	opts    adaptor.Options
	cloud   *fake.Cloud
	network *adaptortest.Network
	relay   *adaptortest.Relay
	vnis    *adaptortest.VNIs
	netns   string
}

// newStand makes a stand; change, if any, alters its options first.
func newStand(t testing.TB, change func(*stand)) *stand {
	t.Helper()
	dir := shortDir(t)
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{
		t: t, dir: dir, cloud: cloud,
		network: &adaptortest.Network{Dir: filepath.Join(dir, "network")},
		relay:   &adaptortest.Relay{Dir: filepath.Join(dir, "relay")},
		netns:   filepath.Join(dir, "netns"),
	}
	for _, folder := range []string{s.network.Dir, s.relay.Dir, s.netns} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.opts = adaptor.Options{
		Provider: cloud, ProviderName: "fake",
		Network: s.network, Relay: s.relay, MinVNI: 555000,
		TLS:       adaptor.TLS{Issue: adaptortest.Issue},
		PodsDir:   filepath.Join(dir, "pods"),
		ClusterID: "here", NodeName: "node1",
		ListSettle: time.Nanosecond,
		MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		StopGrace: patience,
		Log:       slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(s)
	}
	s.open()
	t.Cleanup(s.close)
	return s
}

// open starts the service, as a new process would.
func (s *stand) open() {
	s.t.Helper()
	s.vnis = &adaptortest.VNIs{Min: 555000}
	s.opts.VNIs = s.vnis
	service, err := adaptor.New(s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := service.Recover(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.Service = service
}

func (s *stand) close() {
	if s.Service == nil {
		return
	}
	if err := s.Close(context.Background()); err != nil {
		s.t.Error(err)
	}
	s.Service = nil
}

// restart ends the service in good order and starts the next.
func (s *stand) restart() {
	s.t.Helper()
	s.close()
	s.open()
}

func (s *stand) request(id string) *hypervisorpb.CreateVMRequest {
	return &hypervisorpb.CreateVMRequest{
		Id:                   id,
		NetworkNamespacePath: s.netns,
		Annotations: map[string]string{
			"io.kubernetes.cri.sandbox-name":      "pod-" + id,
			"io.kubernetes.cri.sandbox-namespace": "default",
		},
	}
}

func (s *stand) create(id string) string {
	s.t.Helper()
	resp, err := s.CreateVM(context.Background(), s.request(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetAgentSocketPath()
}

func (s *stand) start(id string) error {
	_, err := s.StartVM(context.Background(), &hypervisorpb.StartVMRequest{Id: id})
	return err
}

func (s *stand) run(id string) {
	s.t.Helper()
	s.create(id)
	if err := s.start(id); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) stop(id string) {
	s.t.Helper()
	if _, err := s.StopVM(context.Background(), &hypervisorpb.StopVMRequest{Id: id}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) sandboxes() []*adaptorpb.Sandbox {
	s.t.Helper()
	resp, err := s.ListSandboxes(context.Background(), &adaptorpb.ListSandboxesRequest{})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetSandboxes()
}

func (s *stand) instances() []provider.Instance {
	s.t.Helper()
	list, err := s.cloud.ListInstances(context.Background(), map[string]string{provider.TagNode: "node1"})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// eventually waits for what happens in the background.
func (s *stand) eventually(what string, happened func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("still not: %s; sandboxes: %v", what, s.sandboxes())
		}
	}
}

// wantNothing waits until no sandbox is left and checks that nothing else is.
func (s *stand) wantNothing() {
	s.t.Helper()
	s.eventually("no sandbox", func() bool { return len(s.sandboxes()) == 0 })
	if leaks, err := s.cloud.Leaks(); err != nil || len(leaks) > 0 {
		s.t.Errorf("left in the cloud: %v, %v", leaks, err)
	}
	if files, _ := filepath.Glob(s.opts.PodsDir + "/*"); len(files) > 0 {
		s.t.Errorf("left on disk: %v", files)
	}
	if n := s.network.Tunnels() + s.relay.Served() + s.vnis.Taken(); n > 0 {
		s.t.Errorf("left on the node: %d tunnels, %d served, %d VNIs", s.network.Tunnels(), s.relay.Served(), s.vnis.Taken())
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("code %s, want %s: %v", got, want, err)
	}
}
