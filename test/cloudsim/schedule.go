// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Stand is a provider on a simulated cloud, for one schedule.
type Stand struct {
	World *World
	// Open makes the provider, as a new process would.
	Open func() (provider.Provider, error)
	// Spec is what instances are made with; owner tags are added.
	Spec provider.InstanceTypeSpec
	// Faults is what may happen; each schedule draws a few and says when.
	Faults []Fault
	// MaxLag is the most reads that do not show a new resource yet.
	MaxLag int
	// Untagged are kinds of resources that cannot carry owner tags.
	Untagged []string
	// Settle is how long recovery may take once nothing fails any more; 3 minutes
	// by default.
	Settle time.Duration
}

// cluster is the owner in the tags of schedules; otherCluster is somebody
// else, whose instances have the same keys.
const (
	cluster      = "schedules"
	otherCluster = "somebody-else"
)

// OwnerTags returns all owner tags of an instance made with key.
func OwnerTags(key string) map[string]string { return ownerTags(cluster, key) }

// ForeignTags returns the tags of an instance of another cluster that was made
// with the same key, for resources that a simulator makes with
// [World.AddForeign].
func ForeignTags(key string) map[string]string { return ownerTags(otherCluster, key) }

func ownerTags(owner, key string) map[string]string {
	return map[string]string{
		provider.TagCluster: owner, provider.TagNode: "node-1", provider.TagNamespace: "default",
		provider.TagPod: "pod-of-" + key, provider.TagKey: key, provider.TagCreated: "2026-01-02T03:04:05Z",
	}
}

// ScheduleKeys are the keys that schedules make instances with.
func ScheduleKeys() []string {
	return []string{"key-a-0000000001", "key-b-0000000002", "key-c-0000000003"}
}

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

// some is how many schedules a run of the tests takes of those there should be:
// all of them take every cloud a minute of processor time.
const some = 100

// Workers is how many schedules run at a time: most of a schedule is waiting.
const Workers = 8

// RunSchedules drives the provider of a stand through n random schedules of
// creations (also of one key at the same time, also given up half way),
// deletions (also during creation), and new processes, under faults. After each
// one the faults end, the caller recovers as Outrigger does, and the books must
// show: no two instances of a key at any time, nothing foreign touched, and
// nothing left. Without OUTRIGGER_SCHEDULES, which is a number or "all", it runs
// some of the n, others each time. OUTRIGGER_SEED runs the one schedule of a
// failure again.
func RunSchedules(t *testing.T, n int, open func(t testing.TB, random *rand.Rand) Stand) {
	t.Helper()
	first, n := seeds(t, n)
	next := make(chan uint64)
	var wait sync.WaitGroup
	for range Workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for seed := range next {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runSchedule(t, seed, open) })
			}
		}()
	}
	for i := range uint64(n) {
		if t.Failed() {
			break // the first failure is the one to look at
		}
		next <- first + i
	}
	close(next)
	wait.Wait()
}

func seeds(t *testing.T, n int) (first uint64, count int) {
	t.Helper()
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OUTRIGGER_SEED: %v", err)
		}
		return seed, 1
	}
	switch text := os.Getenv("OUTRIGGER_SCHEDULES"); text {
	case "all":
	case "":
		t.Logf("%d of %d schedules; `make test-schedules` runs them all", min(n, some), n)
		n = min(n, some)
	default:
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("OUTRIGGER_SCHEDULES is neither a number nor all: %v", err)
		}
	}
	return rand.Uint64() >> 1, n
}

func runSchedule(t *testing.T, seed uint64, open func(testing.TB, *rand.Rand) Stand) {
	random := rand.New(rand.NewPCG(seed, 0))
	stand := open(t, random)
	s := &schedule{t: t, random: random, stand: stand, ids: map[string][]string{}}
	s.draw()
	s.open()
	for range 3 + random.IntN(6) {
		s.step()
	}
	s.background.Wait()
	s.recover()
	if t.Failed() {
		t.Logf("run it again with OUTRIGGER_SEED=%d; what happened:\n%s", seed, strings.Join(s.story, "\n"))
	}
}

// schedule is one run. Only its own goroutine uses random.
type schedule struct {
	t      *testing.T
	random *rand.Rand
	stand  Stand
	p      provider.Provider
	// process ends when the provider's process does.
	process context.Context
	crash   context.CancelFunc

	background sync.WaitGroup
	mu         sync.Mutex
	ids        map[string][]string // what creations answered, by key
	story      []string
}

func (s *schedule) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

// draw puts a few of the stand's faults into the script.
func (s *schedule) draw() {
	for range s.random.IntN(5) {
		if len(s.stand.Faults) == 0 {
			break
		}
		f := s.stand.Faults[s.random.IntN(len(s.stand.Faults))]
		f.Skip += s.random.IntN(5)
		f.Times = max(f.Times, 1) * (1 + s.random.IntN(3))
		s.stand.World.Script(f)
		s.tell("fault %+v", f)
	}
	s.stand.World.SetLag(s.random.IntN(s.stand.MaxLag + 1))
}

func (s *schedule) open() {
	p, err := s.stand.Open()
	if err != nil {
		s.t.Fatalf("opening the provider: %v", err)
	}
	s.p = p
	s.process, s.crash = context.WithCancel(context.Background())
}

func (s *schedule) key() string {
	keys := ScheduleKeys()
	return keys[s.random.IntN(len(keys))]
}

func (s *schedule) step() {
	key := s.key()
	switch s.random.IntN(8) {
	case 0, 1:
		s.create(s.process, s.p, key, s.patience())
	case 2:
		patience, other, process, p := s.patience(), s.patience(), s.process, s.p
		s.background.Go(func() { s.create(process, p, key, other) })
		s.create(process, p, key, patience)
	case 3:
		process, p, patience := s.process, s.p, s.patience()
		s.background.Go(func() { s.create(process, p, key, patience) })
	case 4, 5:
		s.deleteKnown(key, s.patience())
	case 6:
		s.deleteListed(key, s.patience())
	case 7:
		s.restart()
	}
}

// patience is how long a caller waits: often for ever, sometimes not even for
// the first reply.
func (s *schedule) patience() time.Duration {
	if s.random.IntN(3) > 0 {
		return time.Minute
	}
	return time.Duration(s.random.IntN(40)) * time.Millisecond
}

func (s *schedule) create(process context.Context, p provider.Provider, key string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(process, patience)
	defer cancel()
	spec := s.stand.Spec
	spec.Tags = OwnerTags(key)
	instance, err := p.CreateInstance(ctx, "pod-of-"+key, key, userData, spec)
	s.tell("create %s for %v: %s, %v", key, patience, idOf(instance), err)
	if id := idOf(instance); id != "" {
		s.mu.Lock()
		s.ids[key] = append(s.ids[key], id)
		s.mu.Unlock()
	}
}

func idOf(instance *provider.Instance) string {
	if instance == nil {
		return ""
	}
	return instance.ID
}

func (s *schedule) known(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.ids[key]...)
}

func (s *schedule) deleteKnown(key string, patience time.Duration) {
	for _, id := range s.known(key) {
		s.remove(id, patience)
	}
}

func (s *schedule) remove(id string, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.p.DeleteInstance(ctx, id)
	s.tell("delete %s for %v: %v", id, patience, err)
	return err == nil
}

// deleteListed deletes what the cloud shows of a key and returns whether it
// showed nothing.
func (s *schedule) deleteListed(key string, patience time.Duration) (none bool) {
	lister, ok := provider.As[provider.Lister](s.p)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, err := lister.ListInstances(ctx, map[string]string{provider.TagCluster: cluster, provider.TagKey: key})
	s.tell("list %s for %v: %d, %v", key, patience, len(list), err)
	for _, instance := range list {
		if instance.Key != key {
			s.t.Errorf("a list of key %s shows %s of key %q", key, instance.ID, instance.Key)
		}
		s.remove(instance.ID, patience)
	}
	return err == nil && len(list) == 0
}

// restart ends the provider, with whatever it is doing, and opens another.
func (s *schedule) restart() {
	s.tell("restart")
	s.crash()
	if err := s.p.Teardown(); err != nil {
		s.tell("teardown: %v", err)
	}
	s.open()
}

// recover is what Outrigger does once it can: it deletes every instance it
// knows of, and asks again for those whose creation it began.
func (s *schedule) recover() {
	s.stand.World.ClearFaults()
	s.restart()
	settle := s.stand.Settle
	if settle == 0 {
		settle = 3 * time.Minute
	}
	deadline := time.Now().Add(settle)
	wants := s.key()
	s.want(wants, deadline)
	for _, key := range ScheduleKeys() {
		s.deleteKnown(key, time.Until(deadline))
		// The list lags behind, and whoever collects garbage asks again and again.
		for empty := 0; empty <= s.stand.MaxLag && time.Now().Before(deadline); empty++ {
			if !s.deleteListed(key, time.Until(deadline)) {
				empty = -1
				time.Sleep(time.Millisecond)
			}
		}
	}
	s.wantNothing(deadline)
	if err := s.p.Teardown(); err != nil {
		s.t.Errorf("teardown: %v", err)
	}
}

// want makes the instance of a key, whatever was tried before, and looks at it
// in the books.
func (s *schedule) want(key string, deadline time.Time) {
	spec := s.stand.Spec
	spec.Tags = OwnerTags(key)
	var instance *provider.Instance
	err := errors.New("no time left")
	for time.Now().Before(deadline) {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		instance, err = s.p.CreateInstance(ctx, "pod-of-"+key, key, userData, spec)
		cancel()
		s.tell("want %s: %s, %v", key, idOf(instance), err)
		if err == nil {
			break
		}
		time.Sleep(time.Millisecond) // such as one that is still being deleted
	}
	if err != nil {
		s.t.Errorf("nothing fails any more, but instance %s cannot be made: %v", key, err)
		return
	}
	s.mu.Lock()
	s.ids[key] = append(s.ids[key], instance.ID)
	s.mu.Unlock()
	s.checkTags(key)
}

// checkTags looks whether the resources of the only key that is wanted carry
// the owner tags.
func (s *schedule) checkTags(key string) {
	instances := 0
	for _, r := range s.stand.World.Own() {
		if r.Kind == KindInstance && r.Key() == key && !r.Deleting {
			instances++
		}
		if slices.Contains(s.stand.Untagged, r.Kind) || r.Deleting {
			continue
		}
		if tags := OwnerTags(r.Key()); r.Key() == "" || !provider.HasTags(r.Tags, tags) {
			s.t.Errorf("%s has tags %v, which lack some of the owner's", r, r.Tags)
		}
	}
	if instances != 1 {
		s.t.Errorf("%d instances of key %s in the books after its creation", instances, key)
	}
}

// wantNothing collects until nothing is left: deletions that the cloud has accepted go on, and a request that its
// caller has given up may be served only after everything was deleted.
func (s *schedule) wantNothing(deadline time.Time) {
	for len(s.stand.World.Own()) > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
		for _, key := range ScheduleKeys() {
			s.deleteListed(key, time.Until(deadline))
		}
	}
	for _, r := range s.stand.World.Own() {
		s.t.Errorf("leaked: %s", r)
	}
	for _, violation := range s.stand.World.Violations() {
		s.t.Errorf("books: %s", violation)
	}
}
