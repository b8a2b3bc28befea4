// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/outrigger/outrigger/provider"
)

// ownDisk are the tags of disks of tests.
var ownDisk = map[string]string{provider.TagCluster: "test"}

// diskLife makes a disk, attaches it, makes it larger, copies it twice, and removes all. It
// also goes on from where a killed one has stopped.
func diskLife(ctx context.Context, p *Provider, instanceID string) error {
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 4 << 20, Tags: ownDisk})
	if err != nil {
		return err
	}
	if _, err := p.AttachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	if _, err := p.ResizeDisk(ctx, d.ID, 8<<20); err != nil {
		return err
	}
	s, err := p.CreateSnapshot(ctx, "s", d.ID, ownDisk)
	if err != nil {
		return err
	}
	c, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: ownDisk})
	if err != nil {
		return err
	}
	if err := p.DetachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	return errors.Join(p.DeleteSnapshot(ctx, s.ID), p.DeleteDisk(ctx, c.ID), p.DeleteDisk(ctx, d.ID))
}

// TestFailureAnywhereInTheLifeOfADisk lets every call fail in turn, refused or with a lost
// reply, and expects an error that is tried again, success then, and nothing left.
func TestFailureAnywhereInTheLifeOfADisk(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for at, calls := 1, 60; at <= calls; at++ {
			synctest.Test(t, func(t *testing.T) { calls = max(60, failInLife(t, at, lost)) })
		}
	}
}

// failInLife returns how many calls the life of a disk has.
func failInLife(t *testing.T, at int, lost bool) int {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	node, err := fakeCreate(t.Context(), p, "node")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	fail := func() error {
		if n.Add(1) == int32(at) {
			return errBroken
		}
		return nil
	}
	if lost {
		f.after = func(string) error { return fail() }
	} else {
		f.before = func(context.Context, string) error { return fail() }
	}
	if err := diskLife(t.Context(), p, node.ID); err != nil && !provider.Retryable(err) {
		t.Errorf("call %d (lost reply %v): %v", at, lost, err)
	}
	calls := int(n.Load())
	if err := errors.Join(diskLife(t.Context(), p, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
		t.Fatalf("after call %d failed (lost reply %v): %v", at, lost, err)
	}
	f.wantNothing(t)
	return calls
}
