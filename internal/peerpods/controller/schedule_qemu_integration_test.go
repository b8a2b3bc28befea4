// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/providers/qemu"
	"github.com/outrigger/outrigger/test/adaptortest"
	processes "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

// TestPoolSchedulesOnQEMU is TestSchedulesOfPools with the provider qemu and its VMs, each restored from a template and handed
// over by TLS, and with less time between the steps. VMs are killed, too: while they wait, before and after they are handed over.
// A pod whose adaptor and VM were not killed starts. OUTRIGGER_SCHEDULES is how many, OUTRIGGER_SEED runs one again.
func TestPoolSchedulesOnQEMU(t *testing.T) {
	testns.RequireRoot(t)
	dir := os.Getenv("OUTRIGGER_PODVM_DIR")
	if dir == "" {
		t.Skip("no pod VM image; run: make podvm && OUTRIGGER_PODVM_DIR=$PWD/bin/podvm")
	}
	cfg := qemu.DefaultConfig()
	cfg.Kernel, cfg.Initrd, cfg.Accel, cfg.Memory = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "initrd.cpio"), qemu.AccelTCG, 256
	cfg.TemplateDir = cmp.Or(os.Getenv("QEMU_TEMPLATE_DIR"), t.TempDir())
	if os.Getenv("OUTRIGGER_SCHEDULES")+os.Getenv("OUTRIGGER_SEED") == "" {
		tier.OnlyAll(t)
	}
	first, n := scheduleSeeds(t)
	runSchedules(t, first, min(n, 50), 3, func(t *testing.T, lane int, seed uint64) []string {
		cfg := cfg
		cfg.Bridge, cfg.Subnet6 = fmt.Sprint("orpool", lane), qemu.Prefix{}
		cfg.Subnet.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(100 + lane), 0}), 24)
		return runOnQEMU(t, cfg, seed)
	})
}

// realVMs are those of one schedule.
type realVMs struct {
	*poolSchedule
	cfg  qemu.Config
	open []*qemu.Provider

	mu     sync.Mutex
	handed map[string]string // pods, by name of the VM
	killed map[string]bool   // pods whose VM was killed
	chance func(n int) bool
}

func runOnQEMU(t *testing.T, cfg qemu.Config, seed uint64) []string {
	cfg.StateDir = filepath.Join(processes.Dir(t), "qemu")
	s := newPoolSchedule(t, seed)
	v := &realVMs{poolSchedule: s, cfg: cfg, handed: map[string]string{}, killed: map[string]bool{}}
	v.chance = func(n int) bool { s.mu.Lock(); defer s.mu.Unlock(); return !s.benign && s.lags.IntN(n) == 0 }
	s.vms = vms{
		connect: v.connect, instances: v.instances, left: v.left, at: v.at, issue: adaptortest.IssueReal, probe: v.probe, handOver: v.handOver, answers: v.answers,
		trouble: v.kill, beforePods: v.awaitWaiting, lose: func(id string) { s.must(v.connect().DeleteInstance(t.Context(), id)) }, mayFail: v.mayFail,
		pace: 15, pods: 3, waiting: 3, types: []string{""},
	}
	stats := s.run(2, 5+s.random.IntN(5))
	for _, p := range v.open {
		s.must(p.Teardown())
	}
	return stats
}

func (v *realVMs) connect() conn {
	p, err := qemu.New(v.cfg)
	v.must(err)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = append(v.open, p)
	return p
}

func (v *realVMs) list() []provider.Instance {
	list, err := v.open[0].ListInstances(context.Background(), nil)
	v.must(err)
	return list
}

func (v *realVMs) instances() (all []fake.Resource) {
	for _, i := range v.list() {
		all = append(all, fake.Resource{ID: i.ID, Key: i.Key, Tags: i.Tags, Made: i.Created})
	}
	return all
}

func (v *realVMs) left() []fake.Resource {
	all := v.instances()
	for _, pid := range processes.QEMUs(v.cfg.StateDir) {
		all = append(all, fake.Resource{ID: fmt.Sprint("QEMU ", pid)})
	}
	return all
}

func (v *realVMs) at(address string) *machine {
	for _, i := range v.list() {
		if len(i.IPs) > 0 && i.IPs[0].String() == address {
			v.mu.Lock()
			defer v.mu.Unlock()
			return &machine{id: i.ID, key: i.Key, pod: v.handed[claims.Name("small", i.Key)]}
		}
	}
	return nil
}

func (v *realVMs) probe(ctx context.Context, address string, c *tls.Config) error {
	return handover.Send(ctx, address, c, nil)
}

// handOver kills some VMs before and after it hands them over.
func (v *realVMs) handOver(ctx context.Context, address string, c *tls.Config, document []byte) error {
	pod := string(podNameIn.FindSubmatch(document)[1])
	if v.chance(8) {
		v.end(c.ServerName)
	}
	if err := handover.Send(ctx, address, c, document); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if other := v.handed[c.ServerName]; other != "" && other != pod {
		v.t.Errorf("%s, which has pod %s, takes pod %s", c.ServerName, other, pod)
	}
	v.handed[c.ServerName] = pod
	if v.chance(12) {
		v.killed[pod] = true
		v.end(c.ServerName)
	}
	return nil
}

// answers waits for the forwarder of the pod's VM, with the identity that only this pod has.
func (v *realVMs) answers(ctx context.Context, of *relaypb.ServeRequest) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: of.GetTls().GetServerName(), CAPEM: of.GetTls().GetCaPem(),
		CertPEM: of.GetTls().GetCertPem(), KeyPEM: of.GetTls().GetKeyPem(), MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	for dialer := (&tls.Dialer{Config: c}); ; time.Sleep(20 * time.Millisecond) {
		connection, err := dialer.DialContext(ctx, "tcp", of.GetAddress())
		if err == nil {
			return connection.Close()
		}
		host, _, _ := net.SplitHostPort(of.GetAddress())
		m := v.at(host)
		if v.mu.Lock(); ctx.Err() != nil || m == nil || v.killed[m.pod] {
			v.mu.Unlock()
			return errors.Join(context.Cause(ctx), err)
		}
		v.mu.Unlock()
	}
}

// awaitWaiting lets time pass until a VM waits, in most cases.
func (v *realVMs) awaitWaiting() {
	waits := func(pp *v1alpha1.PeerPod) bool { return claims.Waits(pp) }
	for end := time.Now().Add(15 * time.Second); v.random.IntN(40) > 0 && time.Now().Before(end) && len(v.peerPodsOf(waits)) == 0; {
		v.revive()
		v.pass(3 * time.Second)
	}
}

// kill ends a VM, one that waits or one of a pod.
func (v *realVMs) kill() {
	if i := v.random.IntN(len(v.pods) + 1); i < len(v.pods) && v.pods[i].err == nil {
		v.pods[i].err = errors.New("its VM was killed")
		v.tell("the VM of %s is killed", v.pods[i].name)
		v.endInstance(v.pods[i].instance)
		return
	}
	for _, pp := range v.peerPodsOf(func(pp *v1alpha1.PeerPod) bool { return claims.Waits(pp) }) {
		v.tell("%s, which waits, is killed", pp.Spec.InstanceID)
		v.endInstance(pp.Spec.InstanceID)
		return
	}
}

// end kills the QEMU of a VM of the pool.
func (v *realVMs) end(name string) {
	for _, i := range v.list() {
		if claims.Name("small", i.Key) == name {
			v.endInstance(i.ID)
		}
	}
}

func (v *realVMs) endInstance(id string) {
	for _, pid := range processes.QEMUs(v.cfg.StateDir) {
		if folder, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); filepath.Base(folder) == id {
			v.must(syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

// mayFail: a cold start would have failed as well.
func (v *realVMs) mayFail(p *workload) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return p.node.fuse.burnt() || v.api.refuses.Load() || v.killed[p.name]
}
