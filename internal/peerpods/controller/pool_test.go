// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// poolStand is a stand with one pool, whose VMs answer when they are told to.
type poolStand struct {
	*stand
	pools *Pools
	// answer is what the next probes return.
	answer    func(address string) error
	made      int    // calls of CreateInstance
	quotes    bool   // CreateInstance refuses what it is given, and quotes it
	powerless bool   // the provider cannot stop and start VMs
	onNode    bool   // VMs share the processors of a node
	full      string // zone without room
	data      []string
	list      []provider.Instance // what the cloud lists, if not nil
}

// counting is the provider of a poolStand.
type counting struct {
	*fake.Cloud
	of *poolStand
}

func (c *counting) CreateInstance(ctx context.Context, name, key string, data cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	text, err := data.Generate()
	if err != nil {
		return nil, err
	}
	c.of.made++
	if c.of.quotes {
		return nil, fmt.Errorf("%w: bad user-data: %s", provider.ErrInvalidArgument, text)
	}
	if spec.Zone != "" && spec.Zone == c.of.full {
		return nil, fmt.Errorf("%w: zone %s has no room", provider.ErrCapacity, spec.Zone)
	}
	c.of.data = append(c.of.data, text)
	return c.Cloud.CreateInstance(ctx, name, key, data, spec)
}

// HasCapability implements provider.Limited.
func (c *counting) HasCapability(of provider.Capability) bool {
	return (of != provider.CapabilityPower || !c.of.powerless) && (of != provider.CapabilityNodeAddress || c.of.onNode)
}

// NodeAddress implements provider.NodeAddresser.
func (c *counting) NodeAddress(context.Context) (netip.Addr, error) {
	return netip.MustParseAddr("192.0.2.1"), nil
}

func (c *counting) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if c.of.list != nil {
		return c.of.list, nil
	}
	return c.Cloud.ListInstances(ctx, match)
}

// Teardown leaves the cloud: another connection uses it.
func (c *counting) Teardown() error { return nil }

func newPoolStand(t testing.TB, spec v1alpha1.PodVMPoolSpec) *poolStand {
	s := &poolStand{answer: func(string) error { return nil }}
	s.stand = newStand(t, func(c *fake.Cloud) provider.Provider { return &counting{c, s} })
	s.restart()
	pool := &v1alpha1.PodVMPool{ObjectMeta: metav1.ObjectMeta{Name: "small", UID: "pool-uid"}, Spec: spec}
	if err := s.client.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return s
}

// restart replaces the controllers of pools, as a new process does.
func (s *poolStand) restart() {
	s.pools = newPools(s.r)
	s.pools.vms.probe = func(_ context.Context, address string, _ *tls.Config) error { return s.answer(address) }
}

func (s *poolStand) pool() *v1alpha1.PodVMPool {
	s.t.Helper()
	pool := &v1alpha1.PodVMPool{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "small"}, pool); err != nil {
		s.t.Fatal(err)
	}
	return pool
}

func (s *poolStand) edit(change func(*v1alpha1.PodVMPool)) {
	s.t.Helper()
	pool := s.pool()
	change(pool)
	if err := s.client.Update(s.t.Context(), pool); err != nil {
		s.t.Fatal(err)
	}
}

func (s *poolStand) peerPods() []*v1alpha1.PeerPod {
	s.t.Helper()
	var list v1alpha1.PeerPodList
	if err := s.client.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	var all []*v1alpha1.PeerPod
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// once reconciles the pool and each PeerPod once, as events would.
func (s *poolStand) once() {
	s.t.Helper()
	s.check(s.pools.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "small"}}))
	for _, pp := range s.peerPods() {
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pp)}
		s.check(s.pools.vms.Reconcile(s.t.Context(), request))
		s.check(s.r.Reconcile(s.t.Context(), request))
	}
}

func (s *poolStand) check(_ reconcile.Result, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// until reconciles until what is wanted holds.
func (s *poolStand) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // lists of the cloud come from other goroutines
		s.once()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s; pool %+v, %d PeerPods", what, s.pool().Status, len(s.peerPods()))
		}
	}
}

func (s *poolStand) waiting() (list []*v1alpha1.PeerPod) {
	for _, pp := range s.peerPods() {
		if claims.Waits(pp) {
			list = append(list, pp)
		}
	}
	return list
}

func (s *poolStand) untilReady(n int32) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d ready and nothing else", n), func() bool {
		st := s.pool().Status
		total := int32(0)
		for _, pp := range s.peerPods() {
			if pp.Spec.Pool != nil && pp.Spec.Pool.Claim == nil {
				total++
			}
		}
		return st.Ready == n && st.Starting == 0 && total == n
	})
}

// take takes a waiting VM for a pod as a node does.
func (s *poolStand) take(pod string) (taken, own *v1alpha1.PeerPod) {
	s.t.Helper()
	own = s.claim(pod, "sandbox-"+pod)
	of := claims.Claim{Node: "worker", Namespace: "ns", PodName: pod, SandboxID: "sandbox-" + pod}
	taken, err := s.r.claims.Take(s.t.Context(), s.waiting()[0], of, s.clock.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return taken, own
}

// use notes in the pod's PeerPod which VM it has.
func (s *poolStand) use(taken, own *v1alpha1.PeerPod) *v1alpha1.PeerPod {
	return s.update(own, claims.Created(*taken.Status.Instance), claims.TookFrom(taken.Namespace+"/"+taken.Name), claims.Ready)
}

func (s *poolStand) created() int {
	s.t.Helper()
	return s.made
}

func TestPoolIsFilled(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3, VCPUs: 2, MemoryMiB: 2048})
	s.untilReady(3)
	for _, pp := range s.waiting() {
		if pp.Namespace != "system" || pp.Spec.Pool.Name != "small" || len(pp.Status.Instance.Addresses) == 0 {
			t.Errorf("PeerPod %+v", pp)
		}
	}
	if len(s.instances()) != 3 || s.created() != 3 {
		t.Errorf("%d instances by %d calls", len(s.instances()), s.created())
	}
	secret := &corev1.Secret{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: claims.PoolSecret}, secret); err != nil {
		t.Fatal(err)
	}
	for _, data := range s.data {
		if !strings.Contains(data, `"await-pod": true`) || strings.Contains(data, string(secret.Data[corev1.TLSPrivateKeyKey])) {
			t.Errorf("user-data %s", data)
		}
	}
	if ready := meta.FindStatusCondition(s.pool().Status.Conditions, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", ready)
	}
	s.clock.advance(time.Hour)
	s.untilReady(3)
	if s.created() != 3 {
		t.Error("what is full is filled again")
	}
}

// TestTakenOnce: of two pods that try for one VM, one has it.
func TestTakenOnce(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	s.untilReady(1)
	vm := s.waiting()[0]
	var had int
	for _, pod := range []string{"a", "b"} {
		_, err := s.r.claims.Take(t.Context(), vm, claims.Claim{Node: "worker", Namespace: "ns", PodName: pod, SandboxID: pod}, s.clock.Now())
		if err == nil {
			had++
		}
	}
	if had != 1 {
		t.Errorf("%d pods have the VM", had)
	}
	taken, err := s.get(vm)
	if err != nil || taken.Spec.Pool.Claim == nil {
		t.Fatalf("%v, %v", taken, err)
	}
	if _, err := s.r.claims.Take(t.Context(), taken, claims.Claim{Node: "worker", Namespace: "ns", PodName: "c", SandboxID: "c"}, s.clock.Now()); err == nil {
		t.Error("a VM that has a pod is taken again")
	}
}

// TestClaimedVM: the next VM takes the place of one that has a pod, which outlives its pool
// and goes with its pod.
func TestClaimedVM(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	s.untilReady(1)
	taken, own := s.take("web")
	own = s.use(taken, own)
	s.untilReady(1)
	if st := s.pool().Status; st.Claimed != 1 || st.Hits != 1 || s.created() != 2 {
		t.Errorf("status %+v after %d calls", st, s.created())
	}
	s.sweep(time.Hour) // knows whose the VM is
	if err := s.client.Delete(t.Context(), s.pool()); err != nil {
		t.Fatal(err)
	}
	s.until("the pool is gone", func() bool {
		return client.IgnoreNotFound(s.client.Get(t.Context(), client.ObjectKey{Name: "small"}, &v1alpha1.PodVMPool{})) == nil && len(s.peerPods()) == 2
	})
	s.clock.advance(time.Hour)
	s.sweep(time.Hour)
	s.once()
	if len(s.instances()) != 1 {
		t.Fatalf("instances %v: the pod's is gone with the pool", s.instances())
	}
	if now, _ := s.get(own); claims.PhaseOf(now) != v1alpha1.PhaseReady {
		t.Errorf("the pod's PeerPod is %s", claims.PhaseOf(now))
	}
	s.delete(own)
	s.until("nothing is left", func() bool {
		s.clock.advance(time.Minute)
		return len(s.peerPods()) == 0 && len(s.instances()) == 0
	})
}

// TestNodeDiesAfterItsClaim: a VM that was taken and that no pod says it has is deleted,
// and not before its node had the time to say so.
func TestNodeDiesAfterItsClaim(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 0})
	s.edit(func(p *v1alpha1.PodVMPool) { p.Spec.MinReady = 1 })
	s.untilReady(1)
	s.edit(func(p *v1alpha1.PodVMPool) { p.Spec.MinReady = 0 })
	taken, _ := s.take("web")
	s.clock.advance(claimGrace / 2)
	for range 3 {
		s.once()
	}
	if _, err := s.get(taken); err != nil {
		t.Fatalf("within the grace period: %v", err)
	}
	s.clock.advance(claimGrace)
	s.until("the VM is gone", func() bool { _, err := s.get(taken); return err != nil && len(s.instances()) == 0 })
}

// TestNodeObjectGoes: the VM of a pod that is still there stays when somebody deletes its
// Node, which a kubelet makes again.
func TestNodeObjectGoes(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	s.untilReady(1)
	taken, own := s.take("web")
	s.use(taken, own)
	if err := s.client.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-web"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}); err != nil {
		t.Fatal(err)
	}
	s.sweep(time.Hour)
	s.once()
	if now, err := s.get(taken); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the VM of a pod: %v, deleted %v", err, now.DeletionTimestamp)
	}
}

func TestPoolIsReplaced(t *testing.T) {
	for name, change := range map[string]func(*poolStand){
		"type":     func(s *poolStand) { s.edit(func(p *v1alpha1.PodVMPool) { p.Spec.InstanceType = "fake.large" }) },
		"settings": func(s *poolStand) { s.configure(map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_TOKEN": "other"}) },
		"age":      func(s *poolStand) { s.clock.advance(2 * time.Hour) },
		"certificate": func(s *poolStand) {
			s.client.Delete(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: claims.PoolSecret}})
		},
		"lost in the cloud": func(s *poolStand) {
			for _, pp := range s.waiting() {
				s.cloud.DeleteInstance(s.t.Context(), pp.Spec.InstanceID)
			}
			s.sweep(time.Hour / 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3, MaxAge: &metav1.Duration{Duration: time.Hour}})
			s.untilReady(3)
			before := map[string]bool{}
			taken, own := s.take("web")
			s.use(taken, own)
			s.untilReady(3)
			for _, pp := range s.waiting() {
				before[pp.Name] = true
			}
			change(s)
			s.until("all who wait are others", func() bool {
				for _, pp := range s.peerPods() {
					if before[pp.Name] {
						return false
					}
				}
				return s.pool().Status.Ready >= 3
			})
			if _, err := s.get(taken); err != nil {
				t.Errorf("the VM with a pod: %v", err)
			}
		})
	}
}

// TestNewProcessBeginsAnew: VMs whose keys went with a process are deleted, also one that
// the cloud made and the process did not note.
func TestNewProcessBeginsAnew(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3})
	for len(s.peerPods()) == 0 {
		s.check(s.pools.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "small"}}))
	}
	lost := s.peerPods()[0]
	tags := map[string]string{provider.TagCluster: "c1", provider.TagKey: lost.Spec.SandboxID, provider.TagNamespace: "system"}
	if _, err := s.cloud.CreateInstance(t.Context(), "small", lost.Spec.SandboxID, noUserData{}, provider.InstanceTypeSpec{Tags: tags}); err != nil {
		t.Fatal(err)
	}
	s.restart()
	s.until("three others", func() bool {
		s.clock.advance(time.Minute) // an instance may still be in the making
		_, err := s.get(lost)
		return err != nil && s.pool().Status.Ready == 3 && len(s.instances()) == 3
	})
}

// TestNoStorm: a cloud that refuses is asked seldom, and the pool says why it is empty.
func TestNoStorm(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 50})
	s.cloud.Inject(fake.Fail(fake.OpCreate, fmt.Errorf("%w: 0 of 50 cores", provider.ErrQuota)).Repeated(10))
	for range 200 {
		s.clock.advance(100 * time.Millisecond)
		s.once()
	}
	if n := s.created(); n > s.r.options.PoolStarting {
		t.Errorf("%d calls in 20 s", n)
	}
	st := s.pool().Status
	if st.LastError == nil || !strings.Contains(st.LastError.Message, "0 of 50 cores") || st.LastError.Class != provider.ErrQuota.Error() {
		t.Errorf("last error %+v", st.LastError)
	}
	s.events.want(t, "PodVMPool/small", "QuotaExceeded", "0 of 50 cores")
	s.until("it goes on by itself", func() bool { s.clock.advance(30 * time.Second); return s.pool().Status.Ready == 50 })
	if st := s.pool().Status; st.LastError != nil {
		t.Errorf("last error %+v of a full pool", st.LastError)
	}
}

func TestVMThatNeverAnswers(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	s.answer = func(string) error { return errors.New("connection refused") }
	s.until("one is made", func() bool { return len(s.instances()) == 1 })
	first := s.peerPods()[0]
	s.clock.advance(handover.BootLimit + time.Second)
	s.once()
	s.answer = func(string) error { return nil }
	if st := s.pool().Status; st.LastError == nil || !strings.Contains(st.LastError.Message, "connection refused") {
		s.once()
		if st = s.pool().Status; st.LastError == nil {
			t.Errorf("last error %+v", st.LastError)
		}
	}
	s.until("another", func() bool {
		s.clock.advance(time.Minute)
		_, err := s.get(first)
		return err != nil && s.pool().Status.Ready == 1
	})
}

// TestPoolImages: VMs are told which images to pull, one that could not is of use, and other images mean other VMs.
func TestPoolImages(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1, Images: []string{"registry.example.com/web:1"}})
	s.answer = func(string) error { return fmt.Errorf("%w: pull image web:1: not found", handover.ErrUnprepared) }
	s.untilReady(1)
	if !strings.Contains(s.data[0], "registry.example.com/web:1") {
		t.Errorf("user-data %s", s.data[0])
	}
	s.once() // the next status has it
	if st := s.pool().Status; st.LastError == nil || st.LastError.Step != "prepare" || !strings.Contains(st.LastError.Message, "web:1: not found") {
		t.Errorf("last error %+v", st.LastError)
	}
	first := s.waiting()[0].Name
	s.answer = func(string) error { return nil }
	s.edit(func(pool *v1alpha1.PodVMPool) { pool.Spec.Images = []string{"registry.example.com/web:2"} })
	s.untilReady(1)
	if s.waiting()[0].Name == first || s.pool().Status.LastError != nil {
		t.Errorf("VM %s with the former image; last error %+v", first, s.pool().Status.LastError)
	}
}

// TestPoolOfStoppedVMs: each has booted once when it is stopped, also if the process ends in between.
// zones counts the VMs that wait by their zones.
func (s *poolStand) zones() map[string]int {
	n := map[string]int{}
	for _, pp := range s.waiting() {
		if pp.Status.Instance.Zone != pp.Spec.Pool.Zone {
			s.t.Errorf("a VM for zone %q is in %q", pp.Spec.Pool.Zone, pp.Status.Instance.Zone)
		}
		n[pp.Status.Instance.Zone]++
	}
	return n
}

func TestPoolOfZones(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 4, Zones: []string{"fake-zone", "fake-zone-b"}})
	s.untilReady(4)
	if n := s.zones(); n["fake-zone"] != 2 || n["fake-zone-b"] != 2 {
		t.Errorf("VMs by zone: %v", n)
	}
	before := s.pool().Status.Template
	s.edit(func(pool *v1alpha1.PodVMPool) { pool.Spec.Zones = []string{"fake-zone-b"} })
	s.until("all are in the other zone", func() bool { return s.zones()["fake-zone-b"] == 4 && len(s.waiting()) == 4 })
	if s.pool().Status.Template == before {
		t.Error("the zones are not in the template")
	}
	s.edit(func(pool *v1alpha1.PodVMPool) { pool.Spec.Zones = []string{"mars"} })
	s.until("the pool says which zone there is not", func() bool {
		last := s.pool().Status.LastError
		return last != nil && strings.Contains(last.Message, `"mars"`)
	})
}

// TestZoneWithoutRoom: the other zones get the VMs.
func TestZoneWithoutRoom(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3, Zones: []string{"fake-zone", "fake-zone-b"}})
	s.full = "fake-zone"
	s.until("all wait in the zone with room", func() bool { s.clock.advance(time.Second); return s.zones()["fake-zone-b"] == 3 })
}

func TestCostOfAPool(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3, InstanceType: "fake.small"})
	s.untilReady(3)
	s.once()
	if cost := s.pool().Status.CostPerHour; cost != "0.0600" { // fake.small costs 0.02
		t.Errorf("3 VMs cost %q", cost)
	}
	s.edit(func(pool *v1alpha1.PodVMPool) { pool.Spec.MinReady = 0 })
	s.untilReady(0)
	if cost := s.pool().Status.CostPerHour; cost != "" {
		t.Errorf("no VMs cost %q", cost)
	}
}

func TestPoolOfStoppedVMs(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 2, Standby: v1alpha1.StandbyStopped})
	s.answer = func(string) error { return errors.New("connection refused") }
	s.until("two boot", func() bool { return len(s.instances()) == 2 })
	s.once()
	s.areAll(provider.StateRunning)
	booted := map[string]bool{}
	s.answer = func(address string) error {
		if booted[address] {
			t.Errorf("the VM at %s is asked after it was stopped", address)
		}
		booted[address] = true
		return nil
	}
	s.cloud.Inject(fake.LostReply(fake.OpPowerOff).Repeated(2))
	s.once()
	if n := s.pool().Status.Ready; n != 0 || len(booted) != 2 {
		t.Errorf("%d of %d VMs are ready without a word that they are stopped", n, len(booted))
	}
	s.restart()
	s.untilReady(2)
	s.areAll(provider.StateStopped)
	s.edit(func(pool *v1alpha1.PodVMPool) { pool.Spec.Standby = v1alpha1.StandbyRunning })
	old := s.waiting()
	s.answer = func(string) error { return nil }
	s.until("others run in their place", func() bool {
		for _, pp := range old {
			if _, err := s.get(pp); err == nil {
				return false
			}
		}
		return s.pool().Status.Ready == 2
	})
}

// areAll fails the test unless all instances are in a state.
func (s *poolStand) areAll(state provider.InstanceState) {
	s.t.Helper()
	for id := range s.instances() {
		if i, err := s.cloud.GetInstance(s.t.Context(), id); err != nil || i.State != state {
			s.t.Errorf("instance %s: %+v, %v; want %s", id, i, err, state)
		}
	}
}

// TestVMsOnTheNode: the next VM does not boot beside the pod that took one.
func TestVMsOnTheNode(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 2})
	s.onNode = true
	s.untilReady(2)
	taken, own := s.take("web")
	s.use(taken, own)
	for range 3 {
		s.once()
	}
	if s.made != 2 {
		t.Errorf("%d VMs were made before the pod has started", s.made-2)
	}
	s.clock.advance(restAfterClaim)
	s.untilReady(2)
}

// TestStandbyThatTheProviderCannot: the pool says so, and makes nothing.
func TestStandbyThatTheProviderCannot(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1, Standby: v1alpha1.StandbyStopped})
	s.powerless = true
	s.once()
	s.once()
	st := s.pool().Status
	if st.LastError == nil || !strings.Contains(st.LastError.Message, "standby: stopped") || s.made > 0 {
		t.Errorf("%d VMs; last error %+v", s.made, st.LastError)
	}
	if ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "cannot stop and start VMs") {
		t.Errorf("condition %+v", ready)
	}
}

// TestDemand: with pods coming more VMs wait, never more than may, and after a while as
// many as before.
func TestDemand(t *testing.T) {
	most := int32(4)
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 2, MaxReady: &most})
	s.untilReady(2)
	for i := range 5 {
		taken, own := s.take(fmt.Sprintf("web-%d", i))
		s.use(taken, own)
		s.until("one waits", func() bool { return len(s.waiting()) > 0 })
	}
	s.untilReady(4)
	s.clock.advance(surplusAfter + time.Minute)
	s.untilReady(2)
	if st := s.pool().Status; st.Claimed != 5 || st.Hits != 5 {
		t.Errorf("status %+v", st)
	}
}

// TestUnknownProvider: a pool at a provider that is not there says so.
func TestUnknownProvider(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1, CloudProvider: "nobody"})
	s.until("the reason", func() bool {
		st := s.pool().Status
		return st.LastError != nil && strings.Contains(st.LastError.Message, "nobody")
	})
}

// TestAgedVMsWait: VMs that were made together are not all gone at once.
func TestAgedVMsWait(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 3, MaxAge: &metav1.Duration{Duration: time.Hour}})
	s.untilReady(3)
	old := map[string]bool{}
	for _, pp := range s.waiting() {
		old[pp.Name] = true
	}
	s.clock.advance(time.Hour + time.Minute)
	s.until("younger ones wait", func() bool {
		waiting, left := s.waiting(), 0
		for _, pp := range waiting {
			if old[pp.Name] {
				left++
			}
		}
		if len(waiting) < 3 {
			t.Fatalf("%d VMs wait", len(waiting))
		}
		return left == 0
	})
}

// TestClockOfANode: a claim by a clock that is behind has its grace period, and counts.
func TestClockOfANode(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 2})
	s.untilReady(2)
	first, own := s.take("first")
	s.use(first, own)
	s.untilReady(2)
	s.claim("late", "late")
	of := claims.Claim{Node: "worker", Namespace: "ns", PodName: "late", SandboxID: "late"}
	taken, err := s.r.claims.Take(t.Context(), s.waiting()[0], of, s.clock.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s.untilReady(2)
	if _, err := s.get(taken); err != nil || s.pool().Status.Hits != 2 {
		t.Errorf("%v after %d hits", err, s.pool().Status.Hits)
	}
	s.clock.advance(claimGrace)
	s.until("the VM is gone", func() bool { _, err := s.get(taken); return err != nil })
}

// TestShortPods: pods that are gone by now count for the demand as others do.
func TestShortPods(t *testing.T) {
	most := int32(4)
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1, MaxReady: &most})
	s.untilReady(1)
	for i := range 5 {
		taken, own := s.take(fmt.Sprintf("job-%d", i))
		s.delete(s.use(taken, own))
		s.delete(taken)
		s.until("one waits", func() bool { return len(s.waiting()) > 0 })
	}
	s.untilReady(4)
	s.clock.advance(surplusAfter / 2)
	s.untilReady(4)
	s.clock.advance(surplusAfter)
	s.untilReady(1)
}

// TestErrorsKeepKeys: a cloud that quotes what it refuses tells nobody the key of a VM.
func TestErrorsKeepKeys(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	s.quotes = true
	s.until("the reason", func() bool { return s.pool().Status.LastError != nil })
	_, rest, _ := strings.Cut(s.pool().Status.LastError.Message, "create an instance")
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	for _, text := range append(s.events.list, rest) {
		if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "await-pod") || !strings.Contains(rest, "bad user-data") {
			t.Errorf("it says %q", text)
		}
	}
}

// TestNotesAreSeldom: each is a write to the API server, and many VMs may not answer.
func TestNotesAreSeldom(t *testing.T) {
	m, now := &memory{}, time.Now()
	for i := range 100 {
		m.note("boot", fmt.Errorf("no answer %d", i), now.Add(time.Duration(i)*poolPeriod/50))
	}
	if last := m.lastError(); last.Message != "no answer 50" {
		t.Errorf("last noted %q", last.Message)
	}
}

// TestTemplateNeedsTheKey: the name of a template tells nobody who lacks the key whether a
// guess of the provider's credentials is right.
func TestTemplateNeedsTheKey(t *testing.T) {
	s := newPoolStand(t, v1alpha1.PodVMPoolSpec{MinReady: 1})
	c, err := s.r.clouds.Get("fake")
	if err != nil {
		t.Fatal(err)
	}
	if node := []byte("certificate"); templateOf(s.pool(), c, node, []byte("a")) == templateOf(s.pool(), c, node, []byte("b")) {
		t.Error("the same name with another key")
	}
}
