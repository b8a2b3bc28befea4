// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestSnapshotOfADeadProcess: EC2 takes no token. A process that has just started looks until EC2 must have shown what the
// one before has made.
func TestSnapshotOfADeadProcess(t *testing.T) {
	t.Run("another", func(t *testing.T) {
		snapshotWithoutAReply(t, func(s *stand, _ *Provider) *Provider { return s.open(t) })
	})
	t.Run("the same", func(t *testing.T) {
		snapshotWithoutAReply(t, func(_ *stand, first *Provider) *Provider { return first })
	})
}

// snapshotWithoutAReply has the next process go on.
func snapshotWithoutAReply(t *testing.T, next func(*stand, *Provider) *Provider) {
	t.Helper()
	options := lively
	options.ListLag = true
	s := newStand(t, options)
	first := s.open(t)
	d := mustDisk(t, first, "d")
	first.began = time.Now().Add(-time.Hour)
	s.World.SetLag(12) // more looks than are made at least
	s.World.Script(cloudsim.LostReply("ec2:CreateSnapshot"))
	if made, err := first.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatalf("%+v, %v", made, err)
	}
	if n := s.World.Calls()["ec2:CreateSnapshot"]; n != 1 {
		t.Errorf("%d calls", n)
	}
	p := next(s, first)
	p.timing.settle = time.Minute
	if _, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); err != nil {
		t.Fatal(err)
	}
	if n := s.World.Calls()["ec2:CreateSnapshot"]; n != 1 {
		t.Errorf("made %d snapshots", n)
	}
}

// TestSnapshotsOfTwoProcesses: each makes one as if it were alone, and the older stays.
func TestSnapshotsOfTwoProcesses(t *testing.T) {
	s := newStand(t, lively)
	p, other := s.open(t), s.open(t)
	d := mustDisk(t, p, "d")
	for _, p := range []*Provider{p, other} {
		p.began = time.Now().Add(-time.Hour)
	}
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("ec2:CreateSnapshot", hold))
	done := make(chan *provider.Snapshot)
	go func() {
		made, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
		if err != nil {
			t.Error(err)
		}
		done <- made
	}()
	until(t, func() bool { return s.World.Calls()["ec2:CreateSnapshot"] == 1 })
	older, err := other.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	hold.Release()
	if younger := <-done; younger == nil || younger.ID != older.ID {
		t.Errorf("%+v and %+v", younger, older)
	}
	if list, err := p.ListSnapshots(t.Context(), map[string]string{provider.TagKey: "s"}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}
