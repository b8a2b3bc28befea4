// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestRestartKeepsSandboxesAndTheirTunnelIDs(t *testing.T) {
	s := newStand(t, nil)
	s.run("a1")
	s.create("a2")
	s.restart()
	if s.vnis.Taken() != 2 {
		t.Errorf("%d VNIs taken after a restart, want 2", s.vnis.Taken())
	}
	s.run("a3")
	if s.network.Tunnels() != 2 {
		t.Errorf("%d tunnels: two sandboxes share an id", s.network.Tunnels())
	}
	// a2 gets new certificates: the VM's key was in memory only.
	if err := s.start("a2"); err != nil {
		t.Fatal(err)
	}
	data, err := s.cloud.UserData("fake-000003")
	if err != nil || !strings.Contains(data, "server key of podvm-pod-a2-a2") {
		t.Errorf("a2's VM has no identity: %v", err)
	}
	for _, id := range []string{"a1", "a2", "a3"} {
		s.stop(id)
	}
	s.wantNothing()
}

func TestRestartServesWhatTheRelayLost(t *testing.T) {
	s := newStand(t, nil)
	s.run("b1")
	s.close()
	if err := s.relay.Stop(t.Context(), "b1"); err != nil { // as if the relay had died
		t.Fatal(err)
	}
	var asked *relaypb.ServeRequest
	served := make(chan struct{})
	s.relay.ServeErr = func(_ context.Context, req *relaypb.ServeRequest) error {
		asked = req
		close(served)
		return nil
	}
	s.open()
	<-served
	if asked.GetAddress() != "198.18.0.2:15150" || asked.GetTls().GetServerName() != "podvm-pod-b1-b1" || string(asked.GetTls().GetKeyPem()) != "client key" {
		t.Errorf("asked to serve %v", asked)
	}
	s.eventually("served", func() bool { return s.relay.Served() == 1 })
}

func TestRestartStopsWhatNobodyKnows(t *testing.T) {
	s := newStand(t, nil)
	s.close()
	ours := &relaypb.ServeRequest{Id: "ghost", SocketPath: filepath.Join(s.dir, "pods", "ghost.sock")}
	others := &relaypb.ServeRequest{Id: "other", SocketPath: filepath.Join(s.dir, "other.sock")}
	for _, req := range []*relaypb.ServeRequest{ours, others} {
		if err := s.relay.Serve(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	s.open()
	if n := s.relay.Served(); n != 1 {
		t.Errorf("%d served, want only the one of others", n)
	}
}

func TestDamagedRecordLosesNoInstance(t *testing.T) {
	for what, spoil := range map[string]func(record []byte) []byte{
		"empty":    func([]byte) []byte { return nil },
		"torn":     func(record []byte) []byte { return record[:len(record)/2] },
		"garbage":  func([]byte) []byte { return []byte("\x00\xff\x00") },
		"trailing": func(record []byte) []byte { return append(record, "{}"...) },
		"another's": func(record []byte) []byte {
			return []byte(strings.ReplaceAll(string(record), `"id": "c1"`, `"id": "c2"`))
		},
		"of the future": func(record []byte) []byte {
			return []byte(strings.Replace(string(record), `"format": 1`, `"format": 2`, 1))
		},
		"unknown step": func(record []byte) []byte {
			return []byte(strings.Replace(string(record), `"step": "ready"`, `"step": "fly"`, 1))
		},
		"unknown state": func(record []byte) []byte {
			return []byte(strings.Replace(string(record), `"state": "ready"`, `"state": "fly"`, 1))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, nil)
			s.run("c1")
			s.close()
			path := filepath.Join(s.opts.PodsDir, "c1", "sandbox.json")
			record, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, spoil(record), 0o600); err != nil {
				t.Fatal(err)
			}
			s.open()
			s.eventually("no sandbox", func() bool { return len(s.sandboxes()) == 0 })
			if leaks, _ := s.cloud.Leaks(); len(leaks) > 0 || s.relay.Served() > 0 {
				t.Errorf("left over: %v, %d served", leaks, s.relay.Served())
			}
			if kept, _ := filepath.Glob(s.opts.PodsDir + "/.damaged/c1-*.json"); len(kept) != 1 {
				t.Errorf("the damaged record is not kept aside: %v", kept)
			}
			s.restart() // what is kept aside is not a sandbox
			if len(s.sandboxes()) != 0 {
				t.Errorf("sandboxes %v", s.sandboxes())
			}
		})
	}
}

func TestRecordsOfAnotherProviderAreRefused(t *testing.T) {
	s := newStand(t, nil)
	s.run("d1")
	s.close()
	opts := s.opts
	opts.ProviderName = "another"
	service, err := adaptor.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "provider fake") {
		t.Errorf("error %v", err)
	}
	if err := service.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.open()
}

func TestUnfinishedFolderIsRemoved(t *testing.T) {
	s := newStand(t, nil)
	s.close()
	for _, name := range []string{"e1", "e2"} {
		if err := os.MkdirAll(filepath.Join(s.opts.PodsDir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.opts.PodsDir, "e2", "sandbox.json.new"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.wantNothing()
}

// withoutList hides every optional capability of a cloud.
type withoutList struct{ provider.Provider }

func TestInstanceOfALostReplyIsFoundWithoutList(t *testing.T) {
	s := newStand(t, func(s *stand) { s.opts.Provider = withoutList{s.cloud} })
	s.create("f1")
	s.cloud.Inject(fake.LostReply(fake.OpCreate).Repeated(4))
	if err := s.start("f1"); err == nil {
		t.Fatal("StartVM succeeded")
	}
	s.wantNothing()
}

// lateList is a cloud that shows an instance only after some time.
type lateList struct {
	provider.Provider
	lister provider.Lister
	from   time.Time
}

func (l *lateList) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if time.Now().Before(l.from) {
		return nil, nil
	}
	return l.lister.ListInstances(ctx, match)
}

func TestListThatLagsIsNotBelievedAtOnce(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.opts.ListSettle = 200 * time.Millisecond
		s.opts.Provider = &lateList{Provider: s.cloud, lister: s.cloud, from: time.Now().Add(100 * time.Millisecond)}
	})
	s.create("g1")
	s.cloud.Inject(fake.LostReply(fake.OpCreate).Repeated(4))
	if err := s.start("g1"); err == nil {
		t.Fatal("StartVM succeeded")
	}
	s.wantNothing()
}

func TestOrphans(t *testing.T) {
	var idle map[string]time.Time
	s := newStand(t, func(s *stand) {
		s.opts.OrphanTimeout = time.Hour
		s.opts.SweepInterval = 5 * time.Millisecond
		s.relay.Idle = func(id string) time.Time { return idle[id] }
	})
	long := time.Now().Add(-2 * time.Hour)
	idle = map[string]time.Time{"left": long, "kept": long, "young": time.Now()}
	for _, id := range []string{"left", "busy", "young"} {
		s.run(id)
	}
	kept := s.request("kept")
	kept.Annotations[adaptor.AnnotationKeepIdle] = "true"
	if _, err := s.CreateVM(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if err := s.start("kept"); err != nil {
		t.Fatal(err)
	}
	gone := s.request("gone")
	gone.NetworkNamespacePath = filepath.Join(s.dir, "netns-gone")
	if _, err := s.CreateVM(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	s.create("waiting")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	s.eventually("4 sandboxes", func() bool { return len(s.sandboxes()) == 4 })
	var left []string
	for _, sb := range s.sandboxes() {
		left = append(left, sb.Id)
	}
	if got := strings.Join(left, " "); got != "busy kept waiting young" {
		t.Errorf("kept %s", got)
	}
}

func TestSweepServesAgainWhatTheRelayLost(t *testing.T) {
	s := newStand(t, func(s *stand) { s.opts.SweepInterval = 5 * time.Millisecond })
	s.run("h1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	if err := s.relay.Stop(t.Context(), "h1"); err != nil {
		t.Fatal(err)
	}
	s.eventually("served again", func() bool { return s.relay.Served() == 1 })
}

func TestSweepDeletesOnlyItsOwnOldInstances(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.opts.SweepGrace = 40 * time.Millisecond
		s.opts.SweepInterval = time.Hour
	})
	s.run("known")
	instance := func(key string, tags map[string]string) {
		t.Helper()
		tags[provider.TagKey] = key
		if _, err := s.cloud.CreateInstance(t.Context(), key, key, cloudinit.CloudConfig{}, provider.InstanceTypeSpec{Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	instance("unknown", map[string]string{provider.TagCluster: "here", provider.TagNode: "node1"})
	instance("foreign", map[string]string{provider.TagCluster: "there", provider.TagNode: "node1"})
	instance("neighbour", map[string]string{provider.TagCluster: "here", provider.TagNode: "node2"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	s.eventually("the unknown one is deleted", func() bool { return s.keys() == "foreign known neighbour" })
}

// leftovers shows every instance as being deleted, as clouds show what the
// deletion of an instance has left.
type leftovers struct{ *fake.Cloud }

func (l leftovers) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	list, err := l.Cloud.ListInstances(ctx, match)
	for i := range list {
		list[i].State = provider.StateDeleting
	}
	return list, err
}

// TestSweepRemovesWhatADeletionHasLeft: it never goes by itself.
func TestSweepRemovesWhatADeletionHasLeft(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.opts.SweepGrace = 40 * time.Millisecond
		s.opts.SweepInterval = time.Hour
		s.opts.Provider = leftovers{s.cloud}
	})
	s.run("known")
	if _, err := s.cloud.CreateInstance(t.Context(), "p", "left", cloudinit.CloudConfig{},
		provider.InstanceTypeSpec{Tags: map[string]string{provider.TagCluster: "here", provider.TagNode: "node1", provider.TagKey: "left"}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	s.eventually("what is left is deleted", func() bool { return s.keys() == "known" })
}

func TestWithoutClusterIDNoStrangerIsDeleted(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.opts.ClusterID = ""
		s.opts.SweepGrace = time.Millisecond
		s.opts.SweepInterval = time.Hour
	})
	if _, err := s.cloud.CreateInstance(t.Context(), "p", "stranger", cloudinit.CloudConfig{},
		provider.InstanceTypeSpec{Tags: map[string]string{provider.TagNode: "node1"}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	s.Run(ctx)
	if s.keys() != "stranger" || s.cloud.Calls(fake.OpList) != 0 {
		t.Errorf("instances %q after %d lists", s.keys(), s.cloud.Calls(fake.OpList))
	}
}

// keys returns the keys of all instances there are, of whatever owner.
func (s *stand) keys() string {
	s.t.Helper()
	leaks, err := s.cloud.Leaks()
	if err != nil {
		s.t.Fatal(err)
	}
	keys := map[string]bool{}
	var list []string
	for _, resource := range leaks {
		if resource.Kind == fake.KindInstance && !keys[resource.Key] {
			keys[resource.Key] = true
			list = append(list, resource.Key)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestRelayThatDoesNotAnswerFailsTheStart(t *testing.T) {
	s := newStand(t, nil)
	s.close()
	opts := s.opts
	opts.Relay = deadRelay{s.relay}
	service, err := adaptor.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close(t.Context())
	if err := service.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "agent relay") {
		t.Errorf("error %v", err)
	}
}

type deadRelay struct{ adaptor.Relay }

func (deadRelay) List(context.Context) ([]*relaypb.Served, error) {
	return nil, errors.New("connection refused")
}

func TestRecordIsReadableByHumans(t *testing.T) {
	s := newStand(t, nil)
	s.run("i1")
	data, err := os.ReadFile(filepath.Join(s.opts.PodsDir, "i1", "sandbox.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"id": "i1", "state": "ready", "step": "ready", "provider": "fake", "pod-name": "pod-i1", "instance-id": "fake-000001"} {
		if record[key] != want {
			t.Errorf("%s = %v, want %v", key, record[key], want)
		}
	}
}
