// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// sandbox is one sandbox in memory.
type sandbox struct {
	id string
	// op is held by whoever runs steps on the sandbox: CreateVM, StartVM or
	// the removal. Capacity 1.
	op chan struct{}
	// gone is closed when nothing is left.
	gone chan struct{}

	// identity belongs to the holder of op.
	identity *Identity
	// unserved belongs to the sweep: since when the relay does not serve a
	// sandbox that is ready.
	unserved time.Time
	// ended is set when the VM of a ready sandbox was seen to have ended.
	ended atomic.Bool
	// serving is set while the relay is asked to serve the sandbox again.
	serving atomic.Bool

	// writing orders writes to the journal: the newest record wins.
	writing sync.Mutex

	mu     sync.Mutex
	rec    Record
	onDisk bool
	// interrupt ends what was last begun on the sandbox; nil when nothing was.
	// Ending what has finished does nothing.
	interrupt context.CancelCauseFunc
}

func newSandbox(rec Record) *sandbox {
	return &sandbox{id: rec.ID, rec: rec, op: make(chan struct{}, 1), gone: make(chan struct{})}
}

// snapshot returns a copy. Slices and pointers in it are never changed in
// place, only replaced.
func (sb *sandbox) snapshot() Record {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.rec
}

func (sb *sandbox) update(change func(*Record)) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	change(&sb.rec)
}

// advance moves the sandbox to its next state unless it is being removed,
// which nothing takes back.
func (sb *sandbox) advance(to State) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.rec.State == StateStopping {
		return errStopped
	}
	sb.rec.State = to
	return nil
}

// acquire acquires op and returns a function that releases it.
func (sb *sandbox) acquire(ctx context.Context) (func(), error) {
	select {
	case sb.op <- struct{}{}:
		return func() { <-sb.op }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// persist writes the sandbox's record as it is now.
func (s *Service) persist(sb *sandbox) error {
	sb.writing.Lock()
	defer sb.writing.Unlock()
	rec := sb.snapshot()
	if err := s.journal.write(&rec); err != nil {
		return err
	}
	sb.mu.Lock()
	sb.onDisk = true
	sb.mu.Unlock()
	return nil
}
