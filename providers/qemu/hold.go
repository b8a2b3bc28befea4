// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Whoever works on a disk holds the lock of its key. If an instance has it, that of
// the instance's key is taken first. Who has an instance waits for a disk only where no
// disk's holder can wait for the instance: with the instance ended or off.

// held is a disk on which nobody else works, and the instance that it is about.
type held struct {
	disk *volume
	// instance is nil when there is none.
	instance     *record
	instanceLock *statefile.Lock
	diskLock     *statefile.Lock
}

// pollDisk is how often a disk that somebody works on is looked at.
const pollDisk = 5 * time.Millisecond

// holdDisk returns a disk with an instance, or, if that is empty, with the instance that
// has the disk. It does not keep others from the instance while it waits for the disk, which
// may be being copied.
func (p *Provider) holdDisk(ctx context.Context, id, instanceID string) (*held, error) {
	for {
		h, err := p.tryHoldDisk(ctx, id, instanceID)
		if h != nil || err != nil {
			return h, err
		}
		if err := poll.Sleep(ctx, pollDisk); err != nil {
			return nil, fmt.Errorf("wait for disk %s: %w", id, err)
		}
	}
}

// tryHoldDisk returns nil without an error if it has to be tried again.
func (p *Provider) tryHoldDisk(ctx context.Context, id, instanceID string) (*held, error) {
	v, err := ready(p.store.disks(), id)
	if err != nil {
		return nil, err
	}
	of, h := cmp.Or(instanceID, v.Instance), &held{}
	if err := p.holdInstance(ctx, h, of); err != nil {
		return nil, err
	}
	ok, err := p.tryLockDisk(h, v)
	if ok && h.instance == nil && of != "" { // one may have been made meanwhile
		var r *record
		r, err = p.store.instances().load(of)
		ok = r == nil
	}
	if err != nil || !ok || instanceID == "" && h.disk.Instance != of {
		h.release()
		return nil, err
	}
	return h, nil
}

// holdInstance adds an instance, if there is one.
func (p *Provider) holdInstance(ctx context.Context, h *held, id string) error {
	r, err := p.store.instances().load(id)
	if err != nil || r == nil {
		return err
	}
	lock, err := statefile.Acquire(ctx, p.store.instances().lockPath(r.Key))
	if err != nil {
		return err
	}
	if r, err = p.store.instances().load(id); err != nil || r == nil {
		lock.ReleaseAndRemove()
		return err
	}
	h.instance, h.instanceLock = r, lock
	return nil
}

// tryLockDisk adds a disk unless somebody works on it.
func (p *Provider) tryLockDisk(h *held, v *volume) (bool, error) {
	s := p.store.disks()
	lock, err := statefile.TryAcquire(s.lockPath(v.Key))
	if lock == nil || err != nil {
		return false, err
	}
	if h.disk, err = p.lockedDisk(lock, v.ID); err != nil {
		return false, err
	}
	h.diskLock = lock
	return true, nil
}

// lockedDisk returns the disk whose lock was taken. The lock is released with an error.
func (p *Provider) lockedDisk(lock *statefile.Lock, id string) (*volume, error) {
	s := p.store.disks()
	v, err := s.existing(id)
	if err != nil {
		lock.ReleaseAndRemove()
		return nil, err
	}
	info, err := os.Stat(s.image(id))
	if err != nil {
		lock.Release()
		return nil, fmt.Errorf("image of disk %s: %w", id, err)
	}
	v.Bytes = max(v.Bytes, info.Size()) // resized by a process that was killed
	return v, nil
}

// release lets the next ones in.
func (h *held) release() {
	h.releaseInstance()
	if h.diskLock != nil {
		h.diskLock.Release()
	}
}

// releaseInstance keeps the disk.
func (h *held) releaseInstance() {
	if h.instanceLock != nil {
		h.instanceLock.Release()
		h.instanceLock = nil
	}
}

// disksOf returns the ids of the disks that an instance has. A disk whose record is damaged
// is nobody's, and of no use to anybody, until it is repaired: it must not keep all
// instances from ending.
func (p *Provider) disksOf(instanceID string) []string {
	volumes, err := p.store.disks().list()
	if err != nil {
		p.cfg.log().Warn("a disk is left out", "instance", instanceID, "error", err)
	}
	var ids []string
	for _, v := range volumes {
		if v.Instance == instanceID {
			ids = append(ids, v.ID)
		}
	}
	slices.SortFunc(ids, strings.Compare)
	return ids
}

// lockDisksOf returns the disks of an instance that is held and does not run, after all who
// copy one have finished.
func (p *Provider) lockDisksOf(ctx context.Context, instanceID string) (disks []*volume, release func(), err error) {
	var locks []*statefile.Lock
	release = func() {
		for _, lock := range locks {
			lock.Release()
		}
	}
	for _, id := range p.disksOf(instanceID) {
		var v *volume
		if v, err = p.store.disks().existing(id); err != nil {
			break // attached disks do not go away: the record is damaged
		}
		var lock *statefile.Lock
		if lock, err = statefile.Acquire(ctx, p.store.disks().lockPath(v.Key)); err != nil {
			break
		}
		if v, err = p.lockedDisk(lock, id); err != nil {
			break
		}
		locks, disks = append(locks, lock), append(disks, v)
	}
	if err != nil {
		release()
		return nil, nil, fmt.Errorf("disks of instance %s: %w", instanceID, err)
	}
	return disks, release, nil
}

// usable returns why a disk cannot be attached to an instance, or nil.
func (h *held) usable(instanceID string) error {
	switch {
	case h.instance == nil:
		return fmt.Errorf("%w: no instance %q", provider.ErrNotFound, instanceID)
	case h.instance.Phase != phaseReady:
		return fmt.Errorf("%w: instance %s is %s", provider.ErrUnavailable, instanceID, h.instance.Phase)
	case h.disk.Instance != "" && h.disk.Instance != instanceID:
		return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, h.disk.Instance)
	}
	return nil
}
