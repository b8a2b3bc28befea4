// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// removeSnapshots and removeDisks delete what is in the ledger, and then what the lists
// show.
func (r *run) removeSnapshots() {
	r.Helper()
	if ids, lost := r.ledger.takeSnapshots(); lost || len(ids) > 0 {
		r.removeEach("snapshot", ids, lost, func() (ids []string, err error) {
			list, err := r.listSnapshots(r.owner)
			for _, s := range list {
				ids = append(ids, s.ID)
			}
			return ids, err
		}, func(id string) error {
			err := r.deleteSnapshot(id)
			if _, got := r.getSnapshot(id); err == nil && !errors.Is(got, provider.ErrNotFound) {
				err = fmt.Errorf("snapshot %s is still there: %w", id, got)
			}
			return err
		})
	}
}

func (r *run) removeDisks() {
	r.Helper()
	if ids, lost := r.ledger.takeDisks(); lost || len(ids) > 0 {
		r.removeEach("disk", ids, lost, func() (ids []string, err error) {
			list, err := r.listDisks(r.owner)
			for _, d := range list {
				ids = append(ids, d.ID)
			}
			return ids, err
		}, r.removeDisk)
	}
}

// removeDisk detaches a disk that a broken provider has left attached.
func (r *run) removeDisk(id string) error {
	r.Helper()
	err := r.deleteDisk(id)
	disk, got := r.getDisk(id)
	switch {
	case errors.Is(got, provider.ErrNotFound):
		return err
	case err == nil:
		return fmt.Errorf("disk %s is still there: %v", id, got)
	case got == nil && disk.InstanceID != "":
		return errors.Join(err, r.detach(id, disk.InstanceID))
	}
	return err
}

// removeEach deletes ids and what list shows until it shows nothing, several times when
// nobody may know the id of what a call made.
func (r *run) removeEach(kind string, ids []string, lost bool, list func() ([]string, error), remove func(id string) error) {
	r.Helper()
	quiet, wanted := 0, 1
	if lost {
		wanted = quietLists
	}
	again := func() error {
		for quiet < wanted {
			listed, err := list()
			ids = append(ids, listed...)
			ids = slices.Compact(slices.Sorted(slices.Values(ids)))
			for _, id := range ids {
				err = errors.Join(err, remove(id))
			}
			if err != nil || len(listed) > 0 {
				quiet = 0
				return errors.Join(err, fmt.Errorf("the list shows %v", listed))
			}
			ids, quiet = nil, quiet+1
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}
	if err := r.poll(again); err != nil {
		for _, id := range ids {
			r.left(kind + " " + id)
		}
		r.Errorf("clean up of what is a %s: %v", kind, err)
	}
}
