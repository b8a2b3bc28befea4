// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// createSnapshot makes the call with the limit of a call. The clean-up deletes the
// snapshot.
func (r *run) createSnapshot(p provider.Provider, key, diskID string) (*provider.Snapshot, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	return r.createSnapshotWith(ctx, p, key, diskID)
}

func (r *run) createSnapshotWith(ctx context.Context, p provider.Provider, key, diskID string) (*provider.Snapshot, error) {
	r.Helper()
	snapshotter := capabilityOf[provider.DiskSnapshotter](r, p)
	snapshot, err := callWith(ctx, r, "CreateSnapshot", func(ctx context.Context) (*provider.Snapshot, error) {
		return snapshotter.CreateSnapshot(ctx, key, diskID, r.diskTags(key))
	})
	if snapshot != nil {
		r.ledger.snapshot(snapshot.ID)
	} else {
		r.ledger.lostSnapshot()
	}
	return snapshot, err
}

func (r *run) mustSnapshot(key, diskID string) *provider.Snapshot {
	r.Helper()
	return r.mustSnapshotBy(r.provider, key, diskID)
}

func (r *run) mustSnapshotBy(p provider.Provider, key, diskID string) *provider.Snapshot {
	r.Helper()
	snapshot, err := r.createSnapshot(p, key, diskID)
	switch {
	case err != nil:
		r.Fatalf("CreateSnapshot: %v", err)
	case snapshot == nil:
		r.Fatalf("CreateSnapshot returned neither a snapshot nor an error")
	case snapshot.ID == "":
		r.Fatalf("CreateSnapshot returned a snapshot without an id")
	}
	return snapshot
}

func (r *run) getSnapshot(id string) (*provider.Snapshot, error) {
	r.Helper()
	return r.getSnapshotBy(r.provider, id)
}

func (r *run) getSnapshotBy(p provider.Provider, id string) (*provider.Snapshot, error) {
	r.Helper()
	snapshotter := capabilityOf[provider.DiskSnapshotter](r, p)
	snapshot, err := call(r, "GetSnapshot", func(ctx context.Context) (*provider.Snapshot, error) { return snapshotter.GetSnapshot(ctx, id) })
	if err == nil && snapshot == nil {
		err = errors.New("GetSnapshot returned neither a snapshot nor an error")
	}
	return snapshot, err
}

// ready waits until a disk can be made from a snapshot: copying a disk takes as long as a
// call may.
func (r *run) ready(id string) *provider.Snapshot {
	r.Helper()
	var snapshot *provider.Snapshot
	if err := r.pollFor(r.subject.Limits.Call, func() (err error) {
		if snapshot, err = r.getSnapshot(id); err == nil && !snapshot.Ready {
			err = fmt.Errorf("snapshot %s is not ready", id)
		}
		return err
	}); err != nil {
		r.Fatalf("within %s: %v", r.subject.Limits.Call, err)
	}
	return snapshot
}

// readySnapshot takes a snapshot and waits for it.
func (r *run) readySnapshot(diskID string) *provider.Snapshot {
	r.Helper()
	return r.ready(r.mustSnapshot(newKey(), diskID).ID)
}

func (r *run) listSnapshots(match map[string]string) ([]provider.Snapshot, error) {
	r.Helper()
	return call(r, "ListSnapshots", func(ctx context.Context) ([]provider.Snapshot, error) {
		return power[provider.DiskSnapshotter](r).ListSnapshots(ctx, match)
	})
}

func (r *run) deleteSnapshot(id string) error {
	r.Helper()
	return r.do("DeleteSnapshot", func(ctx context.Context) error {
		return power[provider.DiskSnapshotter](r).DeleteSnapshot(ctx, id)
	})
}

func (r *run) mustDeleteSnapshot(id string) {
	r.Helper()
	if err := r.deleteSnapshot(id); err != nil {
		r.Fatalf("DeleteSnapshot(%q): %v", id, err)
	}
}

// checkNoSnapshot waits until a snapshot is gone.
func (r *run) checkNoSnapshot(id string) {
	r.Helper()
	r.eventually(func() error {
		if _, err := r.getSnapshot(id); !errors.Is(err, provider.ErrNotFound) {
			return fmt.Errorf("GetSnapshot still answers after DeleteSnapshot: %v", err)
		}
		list, err := r.listSnapshots(r.owner)
		if err == nil && slices.ContainsFunc(list, func(s provider.Snapshot) bool { return s.ID == id }) {
			err = fmt.Errorf("the list still shows the deleted snapshot %s", id)
		}
		return err
	})
}

// checkOneSnapshot is checkOneDisk for snapshots.
func (r *run) checkOneSnapshot(key, id string) {
	r.Helper()
	for range quietLists {
		r.eventually(func() error {
			list, err := r.listSnapshots(r.diskTags(key))
			if err == nil && (len(list) != 1 || list[0].ID != id) {
				err = fmt.Errorf("the key has %d snapshots, want %s: %+v", len(list), id, list)
			}
			return err
		})
	}
}
