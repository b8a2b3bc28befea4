// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
	"github.com/outrigger/outrigger/test/crashtest"
)

// poolStand is a stand with a pool, whose VMs answer as they are told to.
type poolStand struct {
	*stand
	cancel func()
	ran    chan struct{}

	mu     sync.Mutex
	handed map[string]string // document by the VM's name
	answer error             // of VMs that are given a document
}

func newPoolStand(t *testing.T, size int) *poolStand {
	p := &poolStand{handed: map[string]string{}}
	p.stand = newStand(t, func(s *stand) {
		s.opts.Pool = adaptor.Pool{Size: size}
		s.opts.TLS.Issue = adaptortest.IssueReal
		s.opts.HandOver = p.handOver
	})
	p.serve()
	t.Cleanup(func() { p.cancel(); <-p.ran })
	return p
}

func (p *poolStand) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	p.cancel, p.ran = cancel, ran
	service := p.Service
	go func() { defer close(ran); service.Run(ctx) }()
}

func (p *poolStand) restart() {
	p.cancel()
	<-p.ran
	p.stand.restart()
	p.serve()
}

func (p *poolStand) handOver(_ context.Context, _ string, config *tls.Config, document []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := config.ServerName
	if _, again := p.handed[name]; again {
		return errors.New("this VM has a pod already")
	}
	if len(document) == 0 {
		return nil
	}
	p.handed[name] = string(document)
	return p.answer
}

func (p *poolStand) state() *adaptorpb.PoolResponse {
	p.t.Helper()
	resp, err := p.Pool(context.Background(), &adaptorpb.PoolRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func (p *poolStand) ready(n int32) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%d VMs wait", n), func() bool { s := p.state(); return s.Ready == n && s.Starting == 0 })
}

func (p *poolStand) drain() {
	p.t.Helper()
	resp, err := p.Pool(context.Background(), &adaptorpb.PoolRequest{Drain: true})
	if err != nil || resp.Size != 0 || resp.Ready+resp.Starting != 0 {
		p.t.Fatalf("drained: %v, %v", resp, err)
	}
}

func TestPodsTakeVMsOfTheNodesOwnPool(t *testing.T) {
	p := newPoolStand(t, 2)
	p.ready(2)
	if n := len(p.sandboxes()); n != 0 {
		t.Errorf("%d VMs that wait are listed as pods", n)
	}
	data, err := p.cloud.UserData("fake-000001")
	if err != nil || !strings.Contains(data, "await-pod") {
		t.Errorf("user-data of a VM that waits: %v\n%s", err, data)
	}
	var pods sync.WaitGroup
	for _, id := range []string{"a1", "a2"} {
		p.create(id)
		pods.Go(func() {
			if err := p.start(id); err != nil {
				t.Error(err)
			}
		})
	}
	pods.Wait()
	a, b := p.sandboxes()[0], p.sandboxes()[1]
	if a.InstanceId == b.InstanceId || len(p.handed) != 2 || p.state().Hits != 2 {
		t.Errorf("pods have %s and %s, %d VMs got a document, %d hits", a.InstanceId, b.InstanceId, len(p.handed), p.state().Hits)
	}
	p.ready(2)
	p.stop("a1")
	if n := len(p.instances()); n != 3 {
		t.Errorf("%d instances after a pod that had a VM of the pool, want 3", n)
	}
	p.restart() // a pod that runs keeps its VM, and those that wait do
	p.ready(2)
	if list := p.sandboxes(); len(list) != 1 || list[0].InstanceId != b.InstanceId && list[0].InstanceId != a.InstanceId {
		t.Errorf("after a restart: %v", list)
	}
	p.stop("a2")
	p.drain()
	p.wantNothing()
}

// TestPodsThatTakeNone: none waits that fits, or it does not take the pod.
func TestPodsThatTakeNone(t *testing.T) {
	p := newPoolStand(t, 1)
	p.ready(1)
	req := p.request("large")
	req.Annotations["io.katacontainers.config.hypervisor.default_memory"] = "4096"
	if _, err := p.CreateVM(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := p.start("large"); err != nil || len(p.handed) != 0 {
		t.Errorf("a pod of another size: %v, %d VMs taken", err, len(p.handed))
	}
	p.answer = handover.ErrRefused
	p.run("refused")
	if list := p.sandboxes(); len(list) != 2 || len(p.handed) != 1 || p.state().Hits != 1 {
		t.Errorf("a VM that does not take its pod: %v, %d documents", list, len(p.handed))
	}
	p.ready(1)
	p.eventually("the VM is deleted that took no pod", func() bool { return len(p.instances()) == 3 })
	p.stop("large")
	p.stop("refused")
	p.drain()
	p.wantNothing()
}

// TestCloudThatRefusesIsAskedSeldom: and pods start without the pool.
func TestCloudThatRefusesIsAskedSeldom(t *testing.T) {
	p := newPoolStand(t, 1)
	p.ready(1)
	p.cloud.Inject(fake.Fault{Op: fake.OpCreate, Err: provider.ErrQuota})
	p.run("a1")
	p.eventually("the error is shown", func() bool { return strings.Contains(p.state().LastError, "quota") })
	calls := p.cloud.Calls(fake.OpCreate)
	p.run("a2") // it wakes the pool, whose pause is a minute
	p.stop("a1")
	p.stop("a2")
	p.drain()
	if n := p.cloud.Calls(fake.OpCreate); n != calls+1 {
		t.Errorf("%d calls after the cloud refused one, want that of the pod", n-calls)
	}
	p.wantNothing()
}

func TestPoolNeedsCertificatesOfItsOwn(t *testing.T) {
	s := newStand(t, nil)
	if _, err := s.Pool(t.Context(), &adaptorpb.PoolRequest{}); err == nil {
		t.Error("an adaptor without a pool describes one")
	} else {
		wantCode(t, err, codes.NotFound)
	}
	for _, change := range []func(*adaptor.Options){
		func(o *adaptor.Options) { o.Pool.Size = -1 },
		func(o *adaptor.Options) { o.Pool.Size, o.TLS = 1, adaptor.TLS{Disabled: true} },
	} {
		o := s.opts
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), "-pool-size") {
			t.Errorf("%+v: %v", o.Pool, err)
		}
	}
}

// TestOtherAdaptorsInstancesStay: two adaptors of one machine have the same owner tags.
func TestOtherAdaptorsInstancesStay(t *testing.T) {
	s := newStand(t, nil)
	s.run("a1")
	for _, tc := range []struct {
		others []string
		left   int
	}{{[]string{filepath.Join(s.dir, "p*")}, 1}, {nil, 0}} {
		o := newStand(t, func(o *stand) {
			o.opts.Provider, o.opts.OtherPods = s.cloud, tc.others
			o.opts.Now = func() time.Time { return time.Now().Add(time.Hour) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		go o.Run(ctx)
		o.eventually("a sweep", func() bool { return s.cloud.Calls(fake.OpList) > 0 && len(s.instances()) == tc.left })
		cancel()
		o.close()
	}
	s.stop("a1")
}

const (
	poolEnv = "OUTRIGGER_TEST_POOL" // at which passing of the failpoint the process ends
	twice   = "twice"               // a file: a VM was used twice
)

// joinPool gives the adaptor of a crash test a pool, if it is to have one. A VM notes in a file
// that it was given away.
func joinPool(dir string) func(*adaptor.Options) (func(context.Context), error) {
	left, err := strconv.Atoi(os.Getenv(poolEnv))
	if err != nil {
		return nil
	}
	return func(o *adaptor.Options) (func(context.Context), error) {
		at := os.Getenv(crashtest.FailpointEnv)
		var mu sync.Mutex
		o.Hook = func(p adaptor.Point) {
			mu.Lock()
			defer mu.Unlock()
			if p.String() == at {
				if left--; left == 0 {
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {} // nothing is done after it
				}
			}
		}
		o.Pool.Size, o.TLS.Issue = 1, adaptortest.IssueReal
		o.HandOver = func(_ context.Context, _ string, config *tls.Config, document []byte) error {
			used := filepath.Join(dir, "used-"+config.ServerName)
			if len(document) == 0 {
				_, err := os.Stat(used)
				if err == nil {
					return errors.New("it has a pod")
				}
				return nil
			}
			f, err := os.OpenFile(used, os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return errors.Join(err, os.WriteFile(filepath.Join(dir, twice), nil, 0o600))
			}
			return f.Close()
		}
		return func(ctx context.Context) {}, nil
	}
}

// poolCrash is one case: an adaptor with a pool of 1, and the next one.
type poolCrash struct {
	t *testing.T
	crashtest.Folder
}

// begin starts an adaptor and connects to it, unless it ends before that.
func (c *poolCrash) begin(env ...string) (client *ttrpc.Client, ended <-chan struct{}) {
	c.t.Helper()
	os.Remove(c.Socket())
	cmd := c.Command()
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { cmd.Wait(); close(gone) }()
	c.t.Cleanup(func() { cmd.Process.Kill(); <-gone })
	c.wait("an adaptor that serves", func() (done bool) {
		select {
		case <-gone:
			return true
		default:
		}
		conn, err := net.Dial("unix", c.Socket())
		if err == nil {
			client = ttrpc.NewClient(conn)
			c.t.Cleanup(func() { client.Close() })
		}
		return err == nil
	})
	return client, gone
}

func (c *poolCrash) wait(what string, happened func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("still not: %s", what)
		}
	}
}

// life takes a pod through its whole life, once a VM waits; its errors are the caller's.
func (c *poolCrash) life(client *ttrpc.Client, id string) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		pool, err := adaptorpb.NewAdaptorClient(client).Pool(ctx, &adaptorpb.PoolRequest{})
		if err != nil {
			return err
		}
		if pool.Ready == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	h := hypervisorpb.NewHypervisorClient(client)
	_, err := h.CreateVM(ctx, &hypervisorpb.CreateVMRequest{Id: id, NetworkNamespacePath: c.Netns(), Annotations: map[string]string{
		"io.kubernetes.cri.sandbox-name": "crash", "io.kubernetes.cri.sandbox-namespace": "default"}})
	if err == nil {
		_, err = h.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: id})
	}
	if err == nil {
		_, err = h.StopVM(ctx, &hypervisorpb.StopVMRequest{Id: id})
	}
	return err
}

// TestKilledWithAPool kills an adaptor at every step of filling its pool (the first that pass a
// point) and of a claim and what follows (the second). The next one uses no VM twice, and
// leaves none.
func TestKilledWithAPool(t *testing.T) {
	points := append(crashtest.Points(t), adaptor.Point{Phase: adaptor.AfterDo, Step: "take-vm"},
		adaptor.Point{Phase: adaptor.Begun, Step: "hand-over"}, adaptor.Point{Phase: adaptor.AfterDo, Step: "hand-over"})
	for _, point := range points {
		for _, passing := range []string{"1", "2"} {
			if passing == "2" && strings.HasSuffix(point.Step, "-vm") || passing == "2" && point.Step == "hand-over" {
				continue // only one pod comes
			}
			t.Run(point.String()+"/"+passing, func(t *testing.T) {
				t.Parallel()
				c := &poolCrash{t, crashtest.NewFolder(t)}
				client, ended := c.begin(crashtest.FailpointEnv+"="+point.String(), poolEnv+"="+passing)
				if client != nil {
					c.life(client, "first") // it ends with the adaptor
				}
				select {
				case <-ended:
				case <-time.After(patience):
					t.Fatal("the adaptor never came to its failpoint")
				}
				c.recovers()
			})
		}
	}
}

// recovers lets the next adaptor go on, with another pod.
func (c *poolCrash) recovers() {
	c.t.Helper()
	client, _ := c.begin(poolEnv+"=0", crashtest.FailpointEnv+"=")
	h, a := hypervisorpb.NewHypervisorClient(client), adaptorpb.NewAdaptorClient(client)
	if _, err := h.StopVM(c.t.Context(), &hypervisorpb.StopVMRequest{Id: "first"}); err != nil {
		c.t.Fatal(err)
	}
	c.wait("the first pod is gone", func() bool {
		list, err := a.ListSandboxes(c.t.Context(), &adaptorpb.ListSandboxesRequest{})
		return err == nil && len(list.GetSandboxes()) == 0
	})
	if err := c.life(client, "second"); err != nil {
		c.t.Fatal(err)
	}
	if _, err := a.Pool(c.t.Context(), &adaptorpb.PoolRequest{Drain: true}); err != nil {
		c.t.Fatal(err)
	}
	c.wait("no instance and no record", func() bool { return c.Instances() == 0 && len(c.Leftovers()) == 0 })
	if _, err := os.Stat(filepath.Join(c.Dir, twice)); err == nil {
		c.t.Error("a VM was used twice")
	}
}
