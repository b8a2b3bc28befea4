// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

var gr = schema.GroupResource{Group: infrav1.GroupVersion.Group, Resource: "objects"}

const (
	allSchedules  = 500
	someSchedules = 15
)

// TestSchedules drives clusters and machines through random schedules: the
// manager is killed at any of its steps and another one takes over, replies are
// lost, caches are behind, objects are paused, deleted in any order, and moved
// to another management cluster. Then all faults end. No machine may ever have
// had two instances at a time, all that are wanted must come to be, and after
// their deletion nothing may be left. OUTRIGGER_SCHEDULES is how many, or all;
// OUTRIGGER_SEED runs one again.
func TestSchedules(t *testing.T) {
	first, n := seeds(t)
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		steps = map[string]int{}
	)
	next := make(chan uint64)
	for range 4 {
		wait.Go(func() {
			for seed := range next {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					died := runSchedule(t, seed)
					mu.Lock()
					defer mu.Unlock()
					for _, where := range died {
						steps[where]++
					}
				})
			}
		})
	}
	for i := range uint64(n) {
		if t.Failed() {
			break
		}
		next <- first + i
	}
	close(next)
	wait.Wait()
	for _, where := range slices.Sorted(maps.Keys(steps)) {
		t.Logf("killed %s: %d times", where, steps[where])
	}
}

func seeds(t *testing.T) (first uint64, count int) {
	t.Helper()
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OUTRIGGER_SEED: %v", err)
		}
		return seed, 1
	}
	n := someSchedules
	switch text := os.Getenv("OUTRIGGER_SCHEDULES"); text {
	case "":
		t.Logf("%d of %d schedules; `make test-schedules` runs them all", n, allSchedules)
	case "all":
		n = allSchedules
	default:
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("OUTRIGGER_SCHEDULES is neither a number nor all: %v", err)
		}
	}
	return rand.Uint64() >> 1, n
}

// schedule is one run. Only its own goroutine uses random.
type schedule struct {
	*world
	t      testing.TB
	random *rand.Rand
	cloud  *fake.Cloud
	*manager
	fuse  *fuse
	cache map[string]client.Object
	died  []string
	story []string
	// removed has the machines that somebody deleted.
	removed map[string]bool
}

func runSchedule(t *testing.T, seed uint64) []string {
	random := rand.New(rand.NewPCG(seed, 1))
	cloud, err := fake.New(fake.Options{Eventual: fake.Eventual{Lingers: random.IntN(3)}})
	if err != nil {
		t.Fatal(err)
	}
	s := &schedule{t: t, world: newWorld(t), random: random, cloud: cloud, cache: map[string]client.Object{}, removed: map[string]bool{}}
	s.open()
	s.addCluster()
	for i := range 2 {
		s.addMachine(fmt.Sprintf("m%d", i))
		s.bootstrap(fmt.Sprintf("m%d", i))
	}
	for range 15 + random.IntN(40) {
		s.step()
	}
	s.recover()
	if t.Failed() {
		t.Logf("run it again with OUTRIGGER_SEED=%d; what happened:\n%s", seed, strings.Join(s.story, "\n"))
	}
	return s.died
}

func (s *schedule) tell(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

// open starts a manager. Its cache begins as that of its predecessor was: a
// list may be answered from a store that is behind.
func (s *schedule) open() {
	s.fuse = &fuse{left: -1}
	if s.random.IntN(3) > 0 {
		s.fuse.light(s.random.IntN(20))
	}
	connection := s.cloud.Reopen()
	for range s.random.IntN(4) {
		faults := []fake.Fault{
			fake.LostReply(fake.OpCreate), fake.LostReply(fake.OpDelete), fake.Throttled(fake.OpCreate), fake.Throttled(fake.OpList),
			fake.Throttled(fake.OpDelete), fake.PartialCreate(), fake.PartialDelete(), fake.NoCapacity(), fake.Unauthenticated(fake.OpGet),
		}
		connection.Inject(faults[s.random.IntN(len(faults))].Skipping(s.random.IntN(3)).Repeated(1 + s.random.IntN(2)))
	}
	c := newMortalClient(s.api, s.fuse, s.random, s.cache)
	c.behind = s.random.IntN(6)
	s.manager = newManager(s.t, s.world, managerOptions{
		provider: mortalCloud{connection, s.fuse}, objects: c, settle: 5 * time.Millisecond, interval: time.Duration(1+s.random.IntN(3)) * time.Millisecond,
	})
}

// restart ends the manager, with whatever it is doing, and starts another.
func (s *schedule) restart() {
	s.fuse.kill()
	s.backend.Close()
	if where, _ := s.fuse.burnt(); where != "" {
		s.died = append(s.died, where)
		s.tell("died %s", where)
	}
	s.open()
}

func (s *schedule) name() string { return fmt.Sprintf("m%d", s.random.IntN(4)) }

func (s *schedule) step() {
	if _, dead := s.fuse.burnt(); dead {
		s.restart()
	}
	name := s.name()
	machine, there := get(s.world, &clusterv1.Machine{}, name)
	data := machine.Spec.Bootstrap.DataSecretName != nil
	switch n := s.random.IntN(40); {
	case n < 4 && !there && !s.ending():
		s.tell("add %s", name)
		s.addMachine(name)
		delete(s.removed, name)
	case n < 8 && there && !data:
		s.tell("bootstrap data of %s", name)
		s.bootstrap(name)
	case n == 9:
		s.remove(name)
	case n == 10:
		s.tell("restart")
		s.restart()
	case n == 11:
		paused := s.random.IntN(3) == 0
		s.tell("pause: %v", paused)
		s.world.pause(paused)
	case n == 12:
		s.move()
	case n == 13:
		s.tell("the machine object of %s is deleted first", name)
		s.removed[name] = true
		s.delete(&infrav1.OutriggerMachine{}, name)
	case n < 20:
		s.core()
	case n == 20:
		time.Sleep(time.Duration(s.random.IntN(3)) * time.Millisecond) // what is in the background goes on
	default:
		s.reconcileAll()
	}
}

func (s *schedule) remove(name string) {
	if m, ok := get(s.world, &clusterv1.Machine{}, name); ok {
		s.tell("delete %s", name)
		s.removed[name] = true
		s.delete(m, name)
		s.delete(&corev1.Secret{}, name)
	}
}

// reconcileAll reconciles everything, some of it twice, in random order.
func (s *schedule) reconcileAll() {
	ctx := context.Background()
	for _, i := range s.random.Perm(5) {
		for range 1 + s.random.IntN(2) {
			if i == 4 {
				s.reconcileCluster(ctx)
			} else {
				s.reconcileMachine(ctx, fmt.Sprintf("m%d", i))
			}
		}
	}
}

// ending says that the cluster is deleted: nobody adds machines to it.
func (s *schedule) ending() bool {
	cluster, ok := s.cluster()
	return !ok || !cluster.DeletionTimestamp.IsZero()
}

// move does what clusterctl does: it pauses the Cluster, makes all objects
// again in another API server without their status, and deletes them here.
func (s *schedule) move() {
	if s.ending() || slices.ContainsFunc(s.machines(), func(m clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() }) ||
		slices.ContainsFunc(s.infras(), func(m infrav1.OutriggerMachine) bool { return !m.DeletionTimestamp.IsZero() }) {
		return
	}
	s.tell("move")
	s.world.pause(true)
	source := s.world
	target := newWorld(s.t)
	target.serial = source.serial
	s.copyTo(target)
	s.deleteForMove(source)
	s.fuse.kill()
	s.backend.Close()
	s.world, s.cache = target, map[string]client.Object{}
	s.open()
	if s.random.IntN(2) == 0 {
		s.reconcileAll() // while it is paused
	}
	s.world.pause(false)
}

func (s *schedule) copyTo(target *world) {
	cluster, _ := s.cluster()
	infra, _ := s.infraCluster()
	cluster.Status, infra.Status = clusterv1.ClusterStatus{}, infrav1.ClusterStatus{}
	objects := []client.Object{cluster, infra}
	for _, m := range s.machines() {
		m.Status = clusterv1.MachineStatus{}
		objects = append(objects, &m)
	}
	for _, m := range s.infras() {
		m.Status = infrav1.MachineStatus{}
		objects = append(objects, &m)
	}
	var secrets corev1.SecretList
	s.must(s.api.List(context.Background(), &secrets))
	for i := range secrets.Items {
		objects = append(objects, &secrets.Items[i])
	}
	for _, o := range objects {
		o.SetOwnerReferences(nil) // core restores them
		target.create(o)
	}
}

// deleteForMove deletes what was moved, while the manager still works.
func (s *schedule) deleteForMove(source *world) {
	ctx := context.Background()
	objects := []client.Object{}
	for _, m := range source.infras() {
		objects = append(objects, &m)
	}
	if infra, ok := source.infraCluster(); ok {
		objects = append(objects, infra)
	}
	if cluster, ok := source.cluster(); ok {
		objects = append(objects, cluster)
	}
	for _, o := range objects {
		s.must(source.api.Get(ctx, client.ObjectKeyFromObject(o), o))
		o.SetAnnotations(map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""})
		s.must(source.api.Update(ctx, o))
		s.must(source.api.Delete(ctx, o))
		s.reconcileAll()
		if err := source.api.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
			o.SetFinalizers(nil)
			s.must(source.api.Update(ctx, o))
		}
		s.reconcileAll()
	}
}

// recover is what follows when nothing fails any more.
func (s *schedule) recover() {
	if s.random.IntN(2) == 0 {
		s.tell("the cluster is deleted while things fail")
		s.delete(&clusterv1.Cluster{}, clusterName)
		for _, m := range s.machines() {
			s.removed[m.Name] = true
		}
		for range 10 {
			s.core()
			s.step()
		}
	}
	s.restart()
	s.fuse.light(-1)
	s.world.pause(false)
	for i := range 4 {
		name := fmt.Sprintf("m%d", i)
		if m, ok := get(s.world, &clusterv1.Machine{}, name); ok && m.DeletionTimestamp.IsZero() {
			s.bootstrap(name)
		}
	}
	s.settled("all machines that are wanted are there, and no others", s.asWanted)
	if cluster, ok := s.cluster(); ok && cluster.DeletionTimestamp.IsZero() {
		s.checkWanted()
	}
	s.tell("delete the cluster")
	s.delete(&clusterv1.Cluster{}, clusterName)
	s.settled("all is deleted", func() bool { _, ok := s.cluster(); return !ok && len(s.infras()) == 0 })
	if left := instances(s.t, s.cloud); len(left) > 0 {
		s.t.Errorf("leaked: instances of %q", left)
	}
	s.checkDoubles()
	s.backend.Close()
}

func (s *schedule) asWanted() bool {
	for _, m := range s.infras() {
		if s.removed[m.Name] || m.Status.Initialization.Provisioned == nil {
			return false
		}
	}
	return true
}

func (s *schedule) settled(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.core()
		s.reconcileAll()
		if ok() {
			return
		}
	}
	for _, m := range s.infras() {
		s.tell("%s: %+v", m.Name, m)
	}
	s.t.Errorf("not in a minute: %s", what)
}

// checkWanted looks whether every machine has its own instance.
func (s *schedule) checkWanted() {
	ids := map[string]string{}
	for _, m := range s.infras() {
		if other, double := ids[m.Spec.ProviderID]; double {
			s.t.Errorf("%s and %s have one providerID: %s", m.Name, other, m.Spec.ProviderID)
		}
		ids[m.Spec.ProviderID] = m.Name
	}
	got := instances(s.t, s.cloud)
	if len(got) != len(ids) {
		s.t.Errorf("%d machines %v have instances of %q", len(ids), ids, got)
	}
}

// checkDoubles looks for two instances of one machine at the same time. A
// machine is one object: one of the same name that is made later is another.
func (s *schedule) checkDoubles() {
	ledger, err := s.cloud.Ledger()
	s.must(err)
	byKey := map[string][]fake.Resource{}
	for _, r := range ledger {
		if r.Kind == fake.KindInstance {
			byKey[r.Tags[provider.TagKey]] = append(byKey[r.Tags[provider.TagKey]], r)
		}
	}
	for key, all := range byKey {
		for i := 1; i < len(all); i++ {
			if before := all[i-1]; before.Deleted.IsZero() || before.Deleted.After(all[i].Made) {
				s.t.Errorf("two instances of %s: %+v, %+v", key, before, all[i])
			}
		}
	}
}
