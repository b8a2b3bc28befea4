// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	lv "github.com/digitalocean/go-libvirt"

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

// TestMakerOfADiskGone: an image that nobody has finished is made again.
func TestMakerOfADiskGone(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { makerGone(t, reopened) })
	}
}

func makerGone(t *testing.T, reopened bool) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	made := false
	f.before = func(_ context.Context, call string) error {
		if made {
			return errBroken // its maker is gone
		}
		return nil
	}
	f.after = func(call string) error {
		made = made || call == "createVolume" && f.vols[imageFile(volumeID(kindDisk, "d"))] != nil
		return nil
	}
	if _, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1 << 20, Tags: ownDisk}); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatalf("the first maker: %v", err)
	}
	f.before, f.after = nil, nil
	if reopened {
		p = fakeProvider(t, f)
	}
	list, err := p.ListDisks(t.Context(), ownDisk)
	if err != nil || len(list) != 1 {
		t.Errorf("listed: %v, %v", list, err)
	}
	d, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 3 << 20, Tags: ownDisk})
	if err != nil || d.Bytes != 3<<20 {
		t.Fatalf("the second maker: %+v, %v", d, err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	f.wantNothing(t)
}

// diskAndNodes makes a disk and two instances.
func diskAndNodes(t *testing.T, p *Provider) (d *provider.Disk, a, b string) {
	t.Helper()
	d, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1 << 20, Tags: ownDisk})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, key := range []string{"a", "b"} {
		i, err := fakeCreate(t.Context(), p, key)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, i.ID)
	}
	return d, ids[0], ids[1]
}

// TestAttachedByALostCall: a disk that is attached though a call has failed is attached.
func TestAttachedByALostCall(t *testing.T) {
	for at := 1; at <= 2; at++ { // the definition, what runs
		f := newFakeDaemon()
		p := fakeProvider(t, f)
		d, a, _ := diskAndNodes(t, p)
		n := 0
		f.after = func(call string) error {
			if call == "attach" {
				if n++; n == at {
					return errBroken
				}
			}
			return nil
		}
		_, err := p.AttachDisk(t.Context(), d.ID, a)
		have, lookErr := p.disksOf(t.Context(), a)
		if path := "/pool/" + imageFile(d.ID); err != nil || lookErr != nil || have.live[path] == "" || have.config[path] == "" {
			t.Errorf("call %d lost: %v, %v, %+v", at, err, lookErr, have)
		}
	}
}

// TestTwoDefinitionsWithADisk: of two processes that claim a disk for two domains at the same
// time neither may keep it for good.
func TestTwoDefinitionsWithADisk(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	d, a, b := diskAndNodes(t, p)
	v, err := p.loadVolume(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{a, b} {
		if err := p.change(t.Context(), f.attach, v, id, "sdb", lv.DomainAffectConfig); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, a); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("attached to the first: %v", err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, b); err != nil {
		t.Errorf("attached to the second: %v", err)
	}
}
