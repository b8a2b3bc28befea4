// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
	"github.com/outrigger/outrigger/test/tier"
)

const (
	allSchedules  = 500
	someSchedules = 3
	tookOne       = "a pod has a VM of the pool"
)

// TestSchedulesOfPools drives a pool, its pods, their nodes and the controller through
// random schedules, with the real adaptor on each node and clocks that only move when
// nobody has anything to do. Adaptors and controllers are killed at any of their calls,
// nodes go for good, clouds fail, the API server refuses writes, VMs do not answer or
// refuse their pod, settings and the pool change. No VM is handed to two pods, no pod
// loses its VM, and every instance has a PeerPod or soon is gone. Then all faults end: the
// pool has as many VMs as it is to have, and nothing is left of what went; without pods and
// pool, nothing at all. OUTRIGGER_SCHEDULES is how many, or all; OUTRIGGER_SEED runs one
// again.
func TestSchedulesOfPools(t *testing.T) {
	first, n := scheduleSeeds(t)
	runSchedules(t, first, n, 2, func(t *testing.T, _ int, seed uint64) (where []string) {
		synctest.Test(t, func(t *testing.T) { where = runPoolSchedule(t, seed) })
		return where
	})
}

// runSchedules runs n schedules in some lanes, and logs what they return.
func runSchedules(t *testing.T, first uint64, n, lanes int, run func(t *testing.T, lane int, seed uint64) []string) {
	stats := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	next := make(chan uint64)
	for lane := range lanes {
		all.Go(func() {
			for seed := range next {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					where := run(t, lane, seed)
					mu.Lock()
					defer mu.Unlock()
					for _, one := range where {
						stats[one]++
					}
				})
			}
		})
	}
	for i := range uint64(n) {
		if t.Failed() {
			break // the first failure is the one to look at
		}
		next <- first + i
	}
	close(next)
	all.Wait()
	if n >= someSchedules && stats[tookOne] == 0 {
		t.Error("no pod of all schedules took a VM of the pool")
	}
	for _, what := range slices.Sorted(maps.Keys(stats)) {
		t.Logf("%s: %d times", what, stats[what])
	}
}

func scheduleSeeds(t *testing.T) (first uint64, count int) {
	t.Helper()
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OUTRIGGER_SEED: %v", err)
		}
		return seed, 1
	}
	text := os.Getenv("OUTRIGGER_SCHEDULES")
	switch n, err := strconv.Atoi(text); {
	case text == "all" && tier.All():
		t.Logf("%d of %d schedules, with the race detector; `make test-schedules` runs them all", allSchedules/5, allSchedules)
		return rand.Uint64() >> 1, allSchedules / 5
	case text == "all", text == "" && tier.All():
		return rand.Uint64() >> 1, allSchedules
	case text == "":
		t.Logf("%d of %d schedules; `make test-schedules` runs them all", someSchedules, allSchedules)
		return rand.Uint64() >> 1, someSchedules
	case err != nil:
		t.Fatalf("OUTRIGGER_SCHEDULES is neither a number nor all: %v", err)
		return 0, 0
	default:
		return rand.Uint64() >> 1, n
	}
}

// machine is a VM that has booted.
type machine struct {
	id, key string
	born    time.Time
	// slow is how long it takes until it answers; refuses is what it says to a pod.
	slow    time.Duration
	refuses bool
	// pod is the one that it was handed.
	pod string
}

// workload is a pod.
type workload struct {
	name, sandbox string
	uid           types.UID
	node          *worker
	// instance is the VM of a pod that is ready.
	instance string
	address  string
	err      error
}

// vms is a cloud with the VMs that it makes.
type vms struct {
	// connect returns a connection for one life of a process.
	connect func() conn
	// instances returns what there is, at returns the VM at an address, if any.
	// left returns all that there is, with what belongs to an instance.
	instances, left func() []fake.Resource
	at              func(address string) *machine
	// issue, probe, handOver and answers are what certificates and VMs of it do.
	issue    func(name string, now time.Time) (*adaptor.Identity, error)
	probe    func(ctx context.Context, address string, c *tls.Config) error
	handOver func(ctx context.Context, address string, c *tls.Config, document []byte) error
	answers  func(ctx context.Context, of *relaypb.ServeRequest) error
	// beforePods is called before pods come.
	beforePods func()
	// trouble is what befalls it, lose takes an instance away.
	trouble func()
	lose    func(id string)
	// mayFail reports whether there is a reason for a pod not to start.
	mayFail func(p *workload) bool
	// pace is by how much a controller's clock is faster than time passes.
	pace time.Duration
	// pods is how many there are at most, waiting how many VMs less one, types are those that a pool may have.
	pods, waiting int
	types         []string
	// standby is how those of the pool wait.
	standby string
}

// poolSchedule is one run. Only its own goroutine uses random.
type poolSchedule struct {
	vms
	t      *testing.T
	seed   uint64
	random *rand.Rand
	api    *apiServer
	cloud  *fake.Cloud
	*process
	nodes    []*worker
	absent   []string // names of Nodes that are not there for a while
	pods     []*workload
	serial   int
	token    int
	story    []string
	stats    []string
	refused  time.Time // since when writes are refused, or accepted
	troubled time.Time // when a sweep may last have missed something

	mu       sync.Mutex
	lags     *rand.Rand
	machines map[string]*machine // by address
	benign   bool
}

func runPoolSchedule(t *testing.T, seed uint64) []string {
	s := newPoolSchedule(t, seed)
	var err error
	s.cloud, err = fake.New(fake.Options{Eventual: fake.Eventual{Lingers: s.random.IntN(3)}, Boot: s.boot, Halt: s.halt})
	if err != nil {
		t.Fatal(err)
	}
	s.vms = s.simulated()
	return s.run(3, 15+s.random.IntN(25))
}

func newPoolSchedule(t *testing.T, seed uint64) *poolSchedule {
	return &poolSchedule{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), lags: rand.New(rand.NewPCG(seed, 2)), api: newAPIServer(), machines: map[string]*machine{}}
}

// simulated returns a cloud in memory whose VMs are entries of a map.
func (s *poolSchedule) simulated() vms {
	return vms{
		connect: func() conn { return s.connection() }, instances: s.resources, left: s.leaks, pace: 1, pods: 1000, waiting: 7, types: []string{"", "", "", "fake.large"},
		standby: []string{v1alpha1.StandbyRunning, v1alpha1.StandbyStopped}[s.random.IntN(2)],
		at:      func(address string) *machine { s.mu.Lock(); defer s.mu.Unlock(); return s.machines[address] }, issue: adaptortest.Issue,
		probe: func(ctx context.Context, address string, c *tls.Config) error {
			return errors.Join(s.running(ctx, address), s.probeSimulated(address, c.ServerName))
		},
		handOver: func(ctx context.Context, address string, c *tls.Config, document []byte) error {
			if err := s.running(ctx, address); err != nil {
				return err
			}
			if len(document) == 0 {
				return s.probeSimulated(address, c.ServerName)
			}
			return s.takePod(address, c.ServerName, document)
		},
		answers:    func(context.Context, *relaypb.ServeRequest) error { return nil },
		lose:       func(id string) { s.must(s.cloud.DeleteInstance(s.t.Context(), id)) },
		beforePods: func() {},
		mayFail:    func(*workload) bool { return true },
		trouble: func() {
			s.tell("the cloud fails")
			s.faults(s.process.conn, 1+s.random.IntN(3))
			s.faults(s.nodes[s.random.IntN(len(s.nodes))].conn, 1+s.random.IntN(3))
		},
	}
}

// run returns where processes ended, and where pods got their VMs.
func (s *poolSchedule) run(nodes, steps int) []string {
	s.openProcess()
	for range nodes {
		s.addNode()
	}
	s.makePool()
	s.pass(time.Duration(s.random.IntN(40)) * time.Second)
	for range steps {
		s.step()
		s.check()
		if s.t.Failed() {
			break
		}
	}
	if !s.t.Failed() {
		s.settle()
	}
	s.close()
	if s.t.Failed() {
		s.t.Logf("run it again with OUTRIGGER_SEED=%d; what happened:\n%s", s.seed, strings.Join(s.story, "\n"))
	}
	return s.stats
}

func (s *poolSchedule) close() {
	for _, w := range s.nodes {
		s.burnt(w.fuse, w.name)
		w.kill()
	}
	s.process.close()
}

func (s *poolSchedule) tell(format string, args ...any) {
	s.story = append(s.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *poolSchedule) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// lag is how long a call is under way.
func (s *poolSchedule) lag() {
	s.mu.Lock()
	d := time.Duration(1+s.lags.IntN(40)) * time.Millisecond
	s.mu.Unlock()
	time.Sleep(d)
}

// boot draws what the VM is like from its id: VMs boot at the same time.
func (s *poolSchedule) boot(_ context.Context, r fake.BootRequest) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := fnv.New64a()
	fmt.Fprint(sum, r.Instance.ID)
	draw := rand.New(rand.NewPCG(s.seed, sum.Sum64()))
	m := &machine{id: r.Instance.ID, key: r.Instance.Key, born: time.Now()}
	if n := draw.IntN(12); !s.benign {
		m.slow, m.refuses = time.Duration(draw.IntN(20))*time.Second, n == 0
		if n == 1 {
			m.slow = 1000 * time.Hour
		}
	}
	s.machines[r.Instance.IPs[0].String()] = m
	return nil, nil
}

func (s *poolSchedule) halt(_ context.Context, i provider.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.machines, func(_ string, m *machine) bool { return m.id == i.ID })
	return nil
}

// dial returns the VM at an address if it has the certificate that the caller wants. An
// address may be another VM's by now.
func (s *poolSchedule) dial(address, server string) (*machine, error) {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	m := s.machines[address]
	if m == nil || time.Since(m.born) < m.slow {
		return nil, fmt.Errorf("%w: dial %s: no route to host", handover.ErrUnreachable, address)
	}
	if claims.Name("small", m.key) != server {
		return nil, fmt.Errorf("the VM at %s is not %s", address, server)
	}
	return m, nil
}

// running returns an error unless the VM at an address runs.
func (s *poolSchedule) running(ctx context.Context, address string) error {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	m := s.at(address)
	if m == nil {
		return fmt.Errorf("%w: nobody is at %s", handover.ErrUnreachable, address)
	}
	if i, err := s.cloud.GetInstance(ctx, m.id); err != nil || i.State != provider.StateRunning {
		return fmt.Errorf("%w: instance %s is not running: %v", handover.ErrUnreachable, m.id, err)
	}
	return nil
}

func (s *poolSchedule) probeSimulated(address, server string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.dial(address, server)
	if err == nil && m.pod != "" {
		err = fmt.Errorf("%s has pod %s", m.id, m.pod)
	}
	return err
}

var podNameIn = regexp.MustCompile(`"pod-name": "([^"]+)"`)

func (s *poolSchedule) takePod(address, server string, document []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.dial(address, server)
	if err != nil {
		return err
	}
	pod := podNameIn.FindSubmatch(document)
	switch {
	case pod == nil:
		return fmt.Errorf("no name of a pod in %s", document)
	case m.pod != "" && m.pod != string(pod[1]):
		s.t.Errorf("instance %s, which has pod %s, is handed to pod %s", m.id, m.pod, pod[1])
	case m.refuses:
		return fmt.Errorf("no room")
	}
	m.pod = string(pod[1])
	return nil
}

func (s *poolSchedule) openProcess() {
	s.process = newProcess(s.api, s.random, s.lag, s.vms)
	s.configure()
	s.troubled = time.Now()
}

func (s *poolSchedule) configure() {
	s.process.r.clouds.Configure(cloud.NewSettings("the test", map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_TOKEN": fmt.Sprint("t", s.token)}))
}

// connection is one to the cloud that may have faults to come.
func (s *poolSchedule) connection() *fake.Cloud {
	c := s.cloud.Reopen()
	s.faults(c, s.random.IntN(3))
	return c
}

func (s *poolSchedule) faults(to conn, n int) {
	c := to.(*fake.Cloud)
	if s.benign {
		return
	}
	list := []fake.Fault{
		fake.LostReply(fake.OpCreate), fake.LostReply(fake.OpCreate), fake.LostReply(fake.OpDelete), fake.Throttled(fake.OpCreate), fake.Throttled(fake.OpList),
		fake.Throttled(fake.OpDelete), fake.LostReply(fake.OpPowerOff), fake.LostReply(fake.OpPowerOn), fake.Throttled(fake.OpPowerOn), fake.PartialCreate(), fake.Quota(), fake.NoCapacity(), fake.Unauthenticated(fake.OpDelete),
		fake.Slow(fake.OpCreate, 30*time.Second), fake.Slow(fake.OpDelete, 20*time.Second),
	}
	for range n {
		c.Inject(list[s.random.IntN(len(list))].Skipping(s.random.IntN(3)).Repeated(1 + s.random.IntN(2)))
	}
}

func (s *poolSchedule) addNode() {
	s.serial++
	name := fmt.Sprintf("node-%d", s.serial)
	s.must(s.api.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	w := newWorker(s.t, name, s.api, s.lag, s.vms)
	w.open()
	s.nodes = append(s.nodes, w)
}

func (s *poolSchedule) makePool() {
	s.must(s.api.Create(s.t.Context(), &v1alpha1.PodVMPool{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: v1alpha1.PodVMPoolSpec{MinReady: int32(min(2+s.random.IntN(5), s.waiting-1)), Arch: runtime.GOARCH, Standby: s.standby}}))
}

func (s *poolSchedule) getPool() *v1alpha1.PodVMPool {
	pool := &v1alpha1.PodVMPool{}
	err := s.api.Get(s.t.Context(), client.ObjectKey{Name: "small"}, pool)
	s.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return pool
}

// pass lets time pass.
func (s *poolSchedule) pass(d time.Duration) {
	for end := time.Now().Add(d / s.vms.pace); ; {
		if s.random.IntN(4) > 0 || s.benign {
			s.must(s.deliver(s.t.Context()))
		}
		s.work(s.t.Context())
		if s.api.refuses.Load() && time.Since(s.refused)*s.vms.pace > 10*time.Second {
			s.process.fuse.kill() // it could not renew its lease
		}
		if s.process.failures > 0 || s.api.refuses.Load() || s.process.fuse.burnt() {
			s.troubled = time.Now()
		}
		if !time.Now().Before(end) {
			return
		}
		time.Sleep(min(time.Until(end), max(time.Until(s.next()), 100*time.Millisecond/s.vms.pace)))
	}
}

func (s *poolSchedule) step() {
	s.revive()
	switch pool := s.getPool(); {
	case s.api.refuses.Load() && s.random.IntN(3) == 0:
		s.refuse(false)
	case pool == nil && s.random.IntN(2) == 0:
		s.replacePool()
	}
	switch n := s.random.IntN(22); {
	case n < 7:
		s.podsCome()
	case n < 9:
		s.podsGo()
	case n == 9:
		w := s.nodes[s.random.IntN(len(s.nodes))]
		s.tell("the adaptor of %s is killed", w.name)
		w.kill()
		w.open()
	case n == 10:
		s.loseNode()
	case n == 11:
		s.hideNode()
	case n == 12:
		s.tell("the controller is killed")
		s.process.close()
		s.openProcess()
	case n == 13:
		s.tell("the controller ends at one of its next calls")
		s.process.fuse.light(s.random, "creation", "CreateInstance", "CreateInstance", "patch", "patch of the status", "deletion", "DeleteInstance")
	case n == 14:
		s.trouble()
	case n == 15:
		s.refuse(!s.api.refuses.Load())
	case n == 16:
		s.token++
		s.tell("settings %d", s.token)
		s.configure()
	case n == 17:
		s.edit()
	case n == 18:
		s.replacePool()
	case n == 19:
		s.loseInstance()
	default:
		// The sweeper takes an instance that has no PeerPod for lost after its grace, also one of a pod that
		// started without the API server and whose adaptor has ended: no kubelet leaves that ended so long.
		s.reviveAdaptors(func() bool { return true })
		d := time.Duration(1+s.random.IntN(600)) * time.Second
		s.tell("%s pass", d)
		s.pass(d)
	}
	s.pass(time.Duration(s.random.IntN(40)) * time.Second)
}

func (s *poolSchedule) refuse(writes bool) {
	s.tell("the API server refuses writes: %v", writes)
	s.api.refuses.Store(writes)
	s.refused = time.Now()
}

// burnt notes where a process ended by itself.
func (s *poolSchedule) burnt(f *fuse, who string) bool {
	dead := f.burnt()
	if f.mu.Lock(); dead && f.where != "" {
		s.tell("%s died %s", who, f.where)
		s.stats = append(s.stats, who[:4]+": "+f.where)
		f.where = ""
	}
	f.mu.Unlock()
	return dead
}

// revive starts what has ended again, most of it, and removes pods that did not start, as
// their shims do.
func (s *poolSchedule) revive() {
	if s.burnt(s.process.fuse, "peerpod-ctrl") && !s.api.refuses.Load() && (s.benign || s.random.IntN(3) > 0) {
		s.process.close()
		s.openProcess()
	}
	s.reviveAdaptors(func() bool { return s.benign || s.random.IntN(3) > 0 })
	for _, p := range slices.Clone(s.pods) {
		if p.err != nil && !p.node.fuse.burnt() {
			s.stop(p)
		}
	}
	for len(s.absent) > 0 && (s.benign || s.random.IntN(6) == 0) {
		s.must(s.api.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.absent[0]}}))
		s.absent = s.absent[1:]
	}
}

func (s *poolSchedule) reviveAdaptors(which func() bool) {
	for _, w := range s.nodes {
		if s.burnt(w.fuse, w.name) && which() {
			w.kill()
			w.open()
		}
	}
}

// podsCome starts pods on several nodes at once.
func (s *poolSchedule) podsCome() {
	s.beforePods()
	var coming []*workload
	for range min(1+s.random.IntN(5), s.vms.pods-len(s.pods)) {
		s.serial++
		w := s.nodes[s.random.IntN(len(s.nodes))]
		if w.fuse.burnt() {
			continue
		}
		p := &workload{name: fmt.Sprintf("pod-%d", s.serial), sandbox: fmt.Sprintf("sandbox-%d", s.serial), node: w}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: p.name}, Spec: corev1.PodSpec{NodeName: w.name}}
		s.must(s.api.Create(s.t.Context(), pod))
		p.uid = pod.UID
		coming = append(coming, p)
		if s.random.IntN(4) == 0 {
			w.fuse.light(s.random, "PATCH system/peerpods", "PATCH system/peerpods", "PATCH ns/peerpods", "PATCH ns/peerpods", "hand-over", "Serve", "CreateInstance")
		}
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, p := range coming {
		all.Go(func() { p.address, p.err = p.node.start(p.sandbox, p.name) })
	}
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		s.pass(50 * time.Millisecond * s.vms.pace)
		select {
		case <-done:
			running = false
		default:
		}
	}
	for _, p := range coming {
		s.pods = append(s.pods, p)
		if m := s.at(p.address); p.err == nil && m != nil {
			p.instance = m.id
			s.stats = append(s.stats, map[bool]string{true: tookOne, false: "a pod has a VM of its own"}[m.pod != ""])
		}
		s.tell("%s on %s: instance %s, %v", p.name, p.node.name, p.instance, p.err)
		if p.err != nil && !s.mayFail(p) {
			s.t.Errorf("%s does not start: %v", p.name, p.err)
		}
		if p.err == nil && p.instance == "" {
			s.t.Errorf("%s is ready and its VM at %q is gone", p.name, p.address)
		}
	}
}

func (s *poolSchedule) podsGo() {
	for range 1 + s.random.IntN(3) {
		if len(s.pods) == 0 {
			return
		}
		if p := s.pods[s.random.IntN(len(s.pods))]; !p.node.fuse.burnt() {
			s.tell("%s goes", p.name)
			if s.random.IntN(6) == 0 {
				p.node.fuse.light(s.random, "DELETE ns/peerpods", "DELETE system/peerpods", "DeleteInstance", "PATCH ns/peerpods")
			}
			s.stop(p)
		}
	}
}

// stop removes a pod. If the adaptor dies meanwhile, who asked has got no answer and asks
// again.
func (s *poolSchedule) stop(p *workload) {
	p.node.end(p.sandbox)
	if p.node.fuse.burnt() {
		p.err = errDead
		return
	}
	s.pods = slices.DeleteFunc(s.pods, func(of *workload) bool { return of == p })
	s.collectPod(p)
}

func (s *poolSchedule) collectPod(p *workload) {
	s.must(client.IgnoreNotFound(s.api.Delete(s.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: p.name}})))
	s.must(s.api.collect(s.t.Context(), p.uid))
}

// loseNode takes a node away for good, and with it its pods.
func (s *poolSchedule) loseNode() {
	w := s.nodes[0]
	s.tell("%s is gone for good", w.name)
	s.burnt(w.fuse, w.name)
	w.kill()
	s.nodes = s.nodes[1:]
	s.absent = slices.DeleteFunc(s.absent, func(name string) bool { return name == w.name })
	s.must(client.IgnoreNotFound(s.api.Delete(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}})))
	for _, p := range slices.Clone(s.pods) {
		if p.node == w {
			s.pods = slices.DeleteFunc(s.pods, func(of *workload) bool { return of == p })
			s.collectPod(p)
		}
	}
	s.addNode()
}

// hideNode deletes a Node whose kubelet will make it again: its pods go on.
func (s *poolSchedule) hideNode() {
	w := s.nodes[s.random.IntN(len(s.nodes))]
	if slices.Contains(s.absent, w.name) {
		return
	}
	s.tell("somebody deletes Node %s", w.name)
	s.absent = append(s.absent, w.name)
	s.must(s.api.Delete(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}}))
}

func (s *poolSchedule) edit() {
	pool := s.getPool()
	if pool == nil || pool.DeletionTimestamp != nil {
		return
	}
	pool.Spec.MinReady, pool.Spec.MaxReady = int32(s.random.IntN(s.waiting)), nil
	if s.random.IntN(2) == 0 {
		most := pool.Spec.MinReady + int32(s.random.IntN((s.waiting+1)/2))
		pool.Spec.MaxReady = &most
	}
	pool.Spec.InstanceType = s.types[s.random.IntN(len(s.types))]
	pool.Spec.MaxAge = []*metav1.Duration{nil, {Duration: time.Hour}}[s.random.IntN(2)]
	s.tell("the pool is to have %d of type %q", pool.Spec.MinReady, pool.Spec.InstanceType)
	s.must(s.api.Update(s.t.Context(), pool))
}

func (s *poolSchedule) replacePool() {
	pool := s.getPool()
	switch {
	case pool == nil:
		s.tell("the pool is made again")
		s.makePool()
	case pool.DeletionTimestamp == nil:
		s.tell("the pool is deleted")
		s.must(s.api.Delete(s.t.Context(), pool))
	}
}

// loseInstance takes a VM away that waits, as a cloud does that needs its machine.
func (s *poolSchedule) loseInstance() {
	for _, pp := range s.peerPodsOf(func(pp *v1alpha1.PeerPod) bool { return claims.Waits(pp) }) {
		s.tell("the cloud takes instance %s back", pp.Spec.InstanceID)
		s.lose(pp.Spec.InstanceID)
		return
	}
}

func (s *poolSchedule) peerPodsOf(is func(*v1alpha1.PeerPod) bool) (some []*v1alpha1.PeerPod) {
	var list v1alpha1.PeerPodList
	s.must(s.api.List(context.Background(), &list))
	for i := range list.Items {
		if is(&list.Items[i]) {
			some = append(some, &list.Items[i])
		}
	}
	return some
}

func everyPeerPod(*v1alpha1.PeerPod) bool { return true }

// leaks returns all that the simulated cloud has.
func (s *poolSchedule) leaks() []fake.Resource {
	all, err := s.cloud.Leaks()
	s.must(err)
	return all
}

func (s *poolSchedule) resources() (list []fake.Resource) {
	return slices.DeleteFunc(s.leaks(), func(r fake.Resource) bool { return r.Kind != fake.KindInstance })
}

// check checks what holds at any time.
func (s *poolSchedule) check() {
	s.t.Helper()
	there, users := map[string]bool{}, map[string]string{}
	keys := map[string]bool{}
	for _, pp := range s.peerPodsOf(everyPeerPod) {
		keys[pp.Spec.SandboxID] = true
	}
	patience := s.process.r.options.Grace + 2*s.process.r.options.Period
	for _, i := range s.instances() {
		there[i.ID] = true
		age := min(time.Since(i.Made), time.Since(s.troubled)) * s.vms.pace
		if !keys[i.Key] && (i.Tags[provider.TagNamespace] == "system" || age > patience) {
			s.t.Errorf("instance %s of sandbox %s has no PeerPod for %s", i.ID, i.Key, age)
		}
	}
	for _, p := range s.pods {
		if p.err != nil {
			continue
		}
		if other := users[p.instance]; other != "" {
			s.t.Errorf("%s and %s have instance %s", p.name, other, p.instance)
		}
		users[p.instance] = p.name
		if !there[p.instance] {
			s.t.Errorf("%s runs and its instance %s is gone", p.name, p.instance)
		}
	}
}

// settle ends all faults and checks where everything comes to rest.
func (s *poolSchedule) settle() {
	s.tell("all faults end")
	s.mu.Lock()
	s.benign = true
	s.mu.Unlock()
	s.api.refuses.Store(false)
	s.process.close()
	s.openProcess()
	for _, w := range s.nodes {
		s.burnt(w.fuse, w.name)
		w.kill()
		w.open()
	}
	s.until("the pool and the pods have what they need", s.settled)
	if s.t.Failed() {
		return
	}
	for _, p := range slices.Clone(s.pods) {
		s.stop(p) // no adaptor dies any more
	}
	if pool := s.getPool(); pool != nil && pool.DeletionTimestamp == nil {
		s.must(s.api.Delete(s.t.Context(), pool))
	}
	s.until("nothing is left", func() string {
		left := s.left()
		journals := 0
		for _, w := range s.nodes {
			entries, _ := os.ReadDir(w.path("pods"))
			served, _ := os.ReadDir(w.path("relay"))
			journals += len(entries) + len(served)
		}
		if pp := s.peerPodsOf(everyPeerPod); len(pp)+len(left)+journals > 0 || s.getPool() != nil {
			return fmt.Sprintf("pool %v, %d PeerPods, %d resources, %d of the nodes'", s.getPool() != nil, len(pp), len(left), journals)
		}
		return ""
	})
}

// until lets time pass until nothing is missing.
func (s *poolSchedule) until(what string, missing func() string) {
	for end := time.Now().Add(2 * time.Hour / s.vms.pace); ; {
		s.revive()
		s.pass(10 * time.Second)
		s.check()
		why := missing()
		if why == "" || s.t.Failed() {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("never: %s: %s", what, why)
			for _, pp := range s.peerPodsOf(everyPeerPod) {
				s.tell("PeerPod %s/%s: %s, deleted %v, spec %+v, pool %+v", pp.Namespace, pp.Name, claims.PhaseOf(pp), pp.DeletionTimestamp, pp.Spec, pp.Spec.Pool)
			}
			return
		}
	}
}

// settled returns what is not yet as it is to be.
func (s *poolSchedule) settled() string {
	own, waiting, used, others := map[string]bool{}, 0, 0, 0
	for _, pp := range s.peerPodsOf(everyPeerPod) {
		switch {
		case pp.DeletionTimestamp != nil:
			others++
		case pp.Spec.Pool == nil:
			own[pp.Spec.SandboxID] = true
		case pp.Spec.Pool.Claim != nil:
			used++
		case claims.Waits(pp):
			waiting++
		default:
			others++
		}
	}
	pooled := 0
	for _, p := range s.pods {
		if !own[p.sandbox] {
			return p.name + " has no PeerPod"
		}
		pp, err := s.r.claims.API.Get(s.t.Context(), "ns", claims.Name(p.name, p.sandbox))
		s.must(err)
		if pp.Spec.InstanceID != p.instance || claims.PhaseOf(pp) != v1alpha1.PhaseReady {
			return fmt.Sprintf("the PeerPod of %s, which has %s, is %s with %s", p.name, p.instance, claims.PhaseOf(pp), pp.Spec.InstanceID)
		}
		if pp.Spec.PoolVM != "" {
			pooled++
		}
	}
	want, instances := 0, len(s.instances())
	if pool := s.getPool(); pool != nil && pool.DeletionTimestamp == nil {
		want = int(pool.Spec.MinReady)
		if st := pool.Status; int(st.Ready) != want || st.Starting != 0 || int(st.Claimed) != used {
			return fmt.Sprintf("the pool's status is %d ready, %d starting, %d claimed, want %d, 0, %d", st.Ready, st.Starting, st.Claimed, want, used)
		}
	}
	if len(own) != len(s.pods) || waiting != want || used != pooled || others != 0 || instances != want+len(s.pods) {
		return fmt.Sprintf("%d pods, %d of pools, %d wanted in the pool: PeerPods of %d pods, %d wait, %d used, %d others; %d instances",
			len(s.pods), pooled, want, len(own), waiting, used, others, instances)
	}
	return ""
}
