// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/provider"
)

// look has the controller's next look at a Node, seconds later.
func (s *stand) look(t *testing.T, node *v1.Node, later time.Duration) (bool, error) {
	t.Helper()
	s.now = s.now.Add(later)
	exists, err := s.InstanceExists(t.Context(), node)
	if err != nil && !exists {
		t.Errorf("an error and a verdict: %v", err)
	}
	return exists, err
}

// looks until the Node is gone, at most n times; it returns how many that took,
// 0 if it never was.
func (s *stand) looks(t *testing.T, node *v1.Node, n int) int {
	t.Helper()
	for i := range n {
		if exists, _ := s.look(t, node, 5*time.Second); !exists {
			return i + 1
		}
	}
	return 0
}

func TestGoneIsGoneAfterASecondLook(t *testing.T) {
	for name, tags := range map[string]map[string]string{"tags given": {provider.TagCluster: "c1"}, "tags learned": nil} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Tags: tags})
			node := s.node("n", "sky://i-1")
			s.node("other", "sky://i-2")
			if n := s.looks(t, node, 5); n != 0 {
				t.Fatalf("an instance that lives is gone after %d looks", n)
			}
			delete(s.sky.all, "i-1")
			s.now = s.now.Add(time.Minute) // no list of before
			if n := s.looks(t, node, 10); n != 4 {
				t.Errorf("gone after %d looks of 5 s; want 4, that is 15 s after the first", n)
			}
		})
	}
}

// TestSlowCloud: Nodes that are looked at one after the other share lists, and looks
// that are far apart since the cloud is slow are a row anyway.
func TestSlowCloud(t *testing.T) {
	for name, c := range map[string]struct {
		list, get time.Duration
		within    time.Duration
	}{
		"list of 12 s":    {12 * time.Second, 0, 2*12*time.Second + time.Minute},
		"list of 30 s":    {30 * time.Second, 0, 2*30*time.Second + time.Minute},
		"look-up of 12 s": {0, 12 * time.Second, 2*15*12*time.Second + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}, CallTimeout: time.Minute})
			s.sky.slow = func(op string) {
				if op == "list" {
					s.now = s.now.Add(c.list)
				} else {
					s.now = s.now.Add(c.get)
				}
			}
			s.node("alive", "sky://i-1")
			var dead []*v1.Node
			for i := range 15 {
				dead = append(dead, s.node(fmt.Sprint("dead", i), fmt.Sprint("sky://gone-", i)))
			}
			for began := s.now; len(dead) > 0; s.now = s.now.Add(5 * time.Second) {
				if took := s.now.Sub(began); took > c.within {
					t.Fatalf("%d Nodes are there after %v", len(dead), took)
				}
				dead = slices.DeleteFunc(dead, func(n *v1.Node) bool { exists, _ := s.look(t, n, 0); return !exists })
			}
		})
	}
}

// TestTwoHundredNodes: each dead one goes within two lists and a minute, counted from
// when the cloud is well, and none that lives, whatever the cloud or the clock does.
func TestTwoHundredNodes(t *testing.T) {
	const minute = time.Minute
	for name, c := range map[string]struct {
		list time.Duration
		// flaps is how long each state lasts, of which every other shows no instance, and
		// that for five minutes.
		flaps time.Duration
		// skew is what the clock jumps by, once in each pass for five minutes.
		skew time.Duration
	}{
		"a list of 30 s":                      {list: 30 * time.Second},
		"empty and full, every 5 s":           {flaps: 5 * time.Second},
		"empty and full, every 40 s":          {flaps: 40 * time.Second},
		"empty and full, with lists of 30 s":  {list: 30 * time.Second, flaps: 20 * time.Second},
		"a clock that jumps ahead":            {skew: time.Hour},
		"a clock that jumps back":             {skew: -time.Hour},
		"a clock that drifts, and slow lists": {list: 30 * time.Second, skew: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}, CallTimeout: time.Minute})
			s.SetEvents(&record.FakeRecorder{}) // nobody reads them
			var dead, alive []*v1.Node
			for i := range 200 {
				id := fmt.Sprint("m-", i)
				node := s.node("node-"+id, "sky://"+id)
				if i%4 == 0 {
					dead = append(dead, node)
				} else {
					alive = append(alive, node)
					s.sky.all[id] = instance(id, node.Name)
				}
			}
			full, began, jumped := s.sky.all, s.now, time.Duration(0)
			passed := func() time.Duration { return s.now.Sub(began) - jumped }
			ill := func() bool { return passed() < 5*minute && (c.flaps > 0 || c.skew != 0) }
			s.sky.slow = func(op string) {
				if s.sky.all = full; c.flaps > 0 && ill() && passed()/c.flaps%2 == 0 {
					s.sky.all = nil
				}
				if op == "list" {
					s.now = s.now.Add(c.list)
				}
			}
			var well time.Duration
			for len(dead) > 0 {
				if ill() {
					well, s.now, jumped = passed(), s.now.Add(c.skew), jumped+c.skew
				}
				if took := passed() - well; took > 2*c.list+minute+5*time.Second {
					t.Fatalf("%d dead Nodes are there after %v", len(dead), took)
				}
				for _, node := range alive {
					if exists, _ := s.look(t, node, 0); !exists {
						t.Fatalf("%s lives, and is said to be gone after %v", node.Name, passed())
					}
				}
				dead = slices.DeleteFunc(dead, func(n *v1.Node) bool { exists, _ := s.look(t, n, 0); return !exists })
				s.now = s.now.Add(5 * time.Second)
			}
		})
	}
}

// TestListOfTheFutureIsNone: after the clock was put back, the last list would be a
// recent one for as long as it was put back by.
func TestListOfTheFutureIsNone(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
	for range 2 {
		if _, err := s.fleet.recent(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(-time.Hour)
	}
	if s.sky.lists != 2 {
		t.Errorf("%d lists, want 2", s.sky.lists)
	}
}

// patient is a cloud whose lists take long, as long as anybody waits.
type patient struct {
	*sky
	list time.Duration
}

func (p *patient) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	select {
	case <-time.After(p.list):
		return p.sky.ListInstances(ctx, match)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestListOf30SecondsIsWaitedFor unless somebody says otherwise: a list that is given up
// each time proves nothing, and dead Nodes stay for ever.
func TestListOf30SecondsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
		s.fleet.lister, s.options.Now = &patient{s.sky, 31 * time.Second}, time.Now
		dead := s.node("dead", "sky://gone")
		s.node("alive", "sky://i-1")
		for began := time.Now(); ; time.Sleep(5 * time.Second) {
			if exists, _ := s.InstanceExists(t.Context(), dead); !exists {
				return
			}
			if time.Since(began) > 2*31*time.Second+time.Minute {
				t.Fatal("the dead Node is still there")
			}
		}
	})
}

// TestNoProofNoDeletion: in each of these cases the cloud says for long that
// there is no such instance, or says nothing.
func TestNoProofNoDeletion(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*stand)
		held   string
	}{
		"empty inventory":                        {func(s *stand) { clear(s.sky.all) }, HeldEmpty},
		"another account's inventory":            {func(s *stand) { clear(s.sky.all); s.sky.all["i-9"] = instance("i-9", "else") }, HeldEmpty},
		"only the other Node being deleted":      {func(s *stand) { delete(s.sky.all, "i-1"); s.state("i-2", provider.StateDeleting) }, HeldEmpty},
		"unreadable list":                        {func(s *stand) { delete(s.sky.all, "i-1"); s.sky.list = provider.ErrUnknown }, HeldNoList},
		"credentials refused":                    {func(s *stand) { s.sky.get, s.sky.list = provider.ErrUnauthenticated, provider.ErrUnauthenticated }, HeldNoList},
		"cloud away":                             {func(s *stand) { s.sky.get, s.sky.list = provider.ErrUnavailable, provider.ErrUnavailable }, HeldNoList},
		"an id that the cloud cannot have given": {func(s *stand) { delete(s.sky.all, "i-1"); s.sky.get = provider.ErrInvalidArgument }, HeldNoList},
		"listed but not found": {func(s *stand) {
			s.sky.get = provider.ErrNotFound
			s.options.Tags = map[string]string{provider.TagCluster: "c2"} // look cannot use the list
		}, HeldEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
			node := s.node("n", "sky://i-1")
			s.node("other", "sky://i-2")
			s.look(t, node, 0)
			s.now = s.now.Add(time.Minute)
			test.change(s)
			if n := s.looks(t, node, 500); n != 0 {
				t.Fatalf("gone after %d looks", n)
			}
			if e := s.event(); !strings.Contains(e, test.held) || (test.held != "") != (e != "") {
				t.Errorf("event %q, want %q", e, test.held)
			}
		})
	}
}

func TestCloudThatContradictsItself(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
	node := s.node("n", "sky://i-1")
	s.node("other", "sky://i-2")
	cause := errors.Join(provider.ErrNotFound)
	list, err := s.fleet.since(t.Context(), s.now)
	if err != nil || list.byID["i-1"] == nil {
		t.Fatal(err)
	}
	// The list of a moment ago has what a look-up does not find.
	if exists, err := s.confirmMissing(t.Context(), node, providerid.Reference{ID: "i-1"}, cause); !exists || err == nil {
		t.Errorf("%v, %v", exists, err)
	}
	if e := s.event(); !strings.Contains(e, HeldContradiction) {
		t.Errorf("event %q", e)
	}
}

func TestAnErrorInBetweenBeginsAnew(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
	node := s.node("n", "sky://i-1")
	s.node("other", "sky://i-2")
	delete(s.sky.all, "i-1")
	if n := s.looks(t, node, 3); n != 0 {
		t.Fatalf("gone after %d looks", n)
	}
	s.sky.get = provider.ErrUnavailable
	s.looks(t, node, 1)
	s.sky.get = nil
	if n := s.looks(t, node, 10); n != 4 {
		t.Errorf("gone after %d looks, want 4", n)
	}
	// Nor do looks count that nobody had for long: the Node was Ready meanwhile.
	delete(s.absent, "i-1")
	s.looks(t, node, 2)
	if exists, _ := s.look(t, node, time.Hour); !exists {
		t.Error("one look after an hour, and it is gone")
	}
}

func TestEmptyInventoryIsTrustedWhenAskedFor(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}, EmptyAfter: time.Minute})
	node := s.node("n", "sky://i-1")
	clear(s.sky.all)
	if n := s.looks(t, node, 100); n != 13 {
		t.Errorf("gone after %d looks of 5 s, want 13", n)
	}
}

func TestRegionsAreToldApart(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}})
	s.options.Name = "alibabacloud"
	node := s.node("n", "cn-beijing.i-9")
	s.node("other", "alibabacloud://i-2") // of region r1
	if n := s.looks(t, node, 100); n != 0 {
		t.Errorf("an instance of another region is gone after %d looks", n)
	}
}
