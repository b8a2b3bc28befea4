// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestSweepDeletesUnclaimedAfterGrace(t *testing.T) {
	s := newStand(t, nil)
	_, mine := s.run("web", "s1")
	orphan := s.create("lost", "s9")
	foreign := s.createIn("c2", "web", "f1")
	s.sweep(time.Hour) // old, but first seen now
	s.wantInstances(mine, orphan, foreign)
	s.sweep(4 * time.Minute)
	s.wantInstances(mine, orphan, foreign)
	s.sweep(2 * time.Minute)
	s.wantInstances(mine, foreign)
	if n := s.cloud.Calls(fake.OpList); n != 3 {
		t.Errorf("%d lists for 3 sweeps", n)
	}
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
	s := newStand(t, func(c *fake.Cloud) provider.Provider { return leftovers{c} })
	_, mine := s.run("web", "s1")
	left := s.create("lost", "s9")
	s.sweep(time.Hour)
	s.sweep(4 * time.Minute)
	s.wantInstances(mine, left)
	s.sweep(2 * time.Minute)
	s.wantInstances(mine)
}

// TestRemoveRepeatsADeletion, whose reply was good and which has left something.
func TestRemoveRepeatsADeletion(t *testing.T) {
	s := newStand(t, func(c *fake.Cloud) provider.Provider { return leftovers{c} })
	pp := s.claim("web", "s1")
	s.create("web", "s1")
	s.clock.advance(time.Hour)
	s.delete(pp)
	s.sees(pp)
	s.clock.advance(time.Hour) // later than any creation could still be under way
	if _, err := s.reconcile(pp); err != nil {
		t.Fatal(err)
	}
	s.awaitQueued(time.Now().Add(time.Minute))
	s.clock.advance(repeatAfter)
	s.settle(pp)
	s.gone(pp)
	s.wantInstances()
}

func TestSweepNeverDeletesYoung(t *testing.T) {
	s := newStand(t, nil)
	s.sweep(time.Hour)
	orphan := s.create("lost", "s9")
	s.sweep(time.Minute)
	s.sweep(3 * time.Minute)
	s.wantInstances(orphan)
}

// TestSweepSparesWhatIsClaimedMeanwhile: a node that had no API server.
func TestSweepSparesWhatIsClaimedMeanwhile(t *testing.T) {
	s := newStand(t, nil)
	late := s.create("late", "s1")
	s.sweep(time.Hour)
	s.claim("late", "s1")
	s.sweep(time.Hour)
	s.wantInstances(late)
	// The break starts the grace again.
	s.sweeper.clearSuspects("fake")
	s.wantInstances(late)
}

// TestSweepAsksPastTheCache: the cache lags behind, the API server knows.
func TestSweepAsksPastTheCache(t *testing.T) {
	s := newStand(t, nil)
	i := s.create("web", "s1")
	s.claim("web", "s1")
	hide := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		return nil // an empty cache
	}}
	s.sweeper.cached = interceptor.NewClient(s.client.(client.WithWatch), hide)
	s.sweep(time.Hour)
	s.sweep(time.Hour)
	s.wantInstances(i)
}

func TestSweepDeletesNothingWithoutTheAPI(t *testing.T) {
	s := newStand(t, nil)
	i := s.create("lost", "s9")
	s.sweep(time.Hour)
	down := errors.New("connection refused")
	s.sweeper.live = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	})
	s.clock.advance(time.Hour)
	if err := s.sweeper.Sweep(t.Context()); !errors.Is(err, down) {
		t.Errorf("%v, want %v", err, down)
	}
	s.wantInstances(i)
}

// TestSweepStartsAnewAfterAnOutage: nodes could not claim meanwhile.
func TestSweepStartsAnewAfterAnOutage(t *testing.T) {
	s := newStand(t, nil)
	i := s.create("late", "s1")
	s.sweep(time.Hour)
	up := s.sweeper.live
	s.sweeper.live = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("refused")
		},
	})
	s.clock.advance(time.Hour)
	if err := s.sweeper.Sweep(t.Context()); err == nil {
		t.Error("an outage is passed over")
	}
	s.sweeper.live = up
	s.sweep(time.Hour)
	s.wantInstances(i)
	s.sweep(time.Hour)
	s.wantInstances()
}

// TestSweepStartsAnewAfterAFailedList: nobody saw it unclaimed all the time.
func TestSweepStartsAnewAfterAFailedList(t *testing.T) {
	s := newStand(t, nil)
	i := s.create("lost", "s9")
	s.sweep(time.Hour)
	s.cloud.Inject(fake.Throttled(fake.OpList))
	s.clock.advance(time.Minute)
	if err := s.sweeper.Sweep(t.Context()); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v, want unavailable", err)
	}
	s.sweep(time.Hour)
	s.wantInstances(i)
	s.sweep(time.Hour)
	s.wantInstances()
}

func TestSweepClockSkew(t *testing.T) {
	s := newStand(t, nil)
	s.clock.advance(24 * time.Hour) // the cloud's clock is a day ahead
	s.create("lost", "s9")
	s.clock.advance(-24 * time.Hour)
	s.sweep(time.Minute)
	s.sweep(10 * time.Minute)
	s.wantInstances()
}

// doubled is a cloud that made two instances for one key.
type doubled struct{ *fake.Cloud }

func (d doubled) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	list, err := d.Cloud.ListInstances(ctx, match)
	for i := range list {
		if list[i].Key == "s1-double" {
			list[i].Key = "s1"
		}
	}
	return list, err
}

func TestSweepRemovesDoubles(t *testing.T) {
	for _, recorded := range []string{"the first", "the second", "none"} {
		t.Run(recorded+" is noted", func(t *testing.T) {
			s := newStand(t, func(c *fake.Cloud) provider.Provider { return doubled{c} })
			pp := s.claim("web", "s1")
			first, second := s.create("web", "s1"), s.create("web", "s1-double")
			keep := first
			switch recorded {
			case "the first":
				s.update(pp, claims.Created(describe(first)))
			case "the second":
				s.update(pp, claims.Created(describe(second)))
				keep = second
			}
			s.sweep(time.Hour)
			s.wantInstances(first, second)
			s.sweep(time.Hour)
			s.wantInstances(keep)
			s.events.want(t, "Pod/web Warning DoubleInstance", keep.ID)
		})
	}
}

func TestSweepTellsOfALostInstance(t *testing.T) {
	s := newStand(t, nil)
	pp, i := s.run("web", "s1")
	if err := s.cloud.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	s.sweep(time.Hour)
	now, err := s.get(pp)
	if err != nil {
		t.Fatal(err)
	}
	if now.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("phase %s", now.Status.Phase)
	}
	s.events.want(t, "Pod/web Warning InstanceLost", i.ID)
}

func TestSweepOfManyDeletesInParallel(t *testing.T) {
	s := newStand(t, nil)
	for n := range 50 {
		s.create("lost", fmt.Sprintf("s%d", n))
	}
	s.cloud.Inject(fake.Slow(fake.OpDelete, 50*time.Millisecond).Repeated(-1))
	s.sweep(time.Hour)
	began := time.Now()
	s.sweep(time.Hour)
	s.wantInstances()
	if took, serial := time.Since(began), 50*50*time.Millisecond; took > serial/2 {
		t.Errorf("50 deletions of 50 ms took %v", took)
	}
}
