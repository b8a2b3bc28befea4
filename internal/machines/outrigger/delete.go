// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// DeleteMachine ends a creation that is still running, then removes every
// instance of the key in the background.
func (b *Backend) DeleteMachine(_ context.Context, s *reconciler.MachineScope) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machine(s)
	if m.create.running() {
		m.create.end() // it wakes us
		return false, nil
	}
	if m.asked == nil {
		now := b.options.Elapsed()
		m.asked = &now
	}
	if m.remove == nil {
		m.remove = b.remove(m, s)
	}
	t := m.remove
	if t.running() {
		return false, nil
	}
	m.remove = nil // the next creation is another attempt
	if t.gone && t.err == nil {
		delete(b.machines, s.Key)
		return true, nil
	}
	return false, t.err
}

// remove starts a removal. Lists are by the key alone: the cluster may be gone.
func (b *Backend) remove(m *machine, s *reconciler.MachineScope) *task {
	spec, _ := s.Infra.ContractMachine()
	id, _ := strings.CutPrefix(spec.ProviderID, b.prefix())
	if id == spec.ProviderID {
		id = ""
	}
	r := removal{key: s.Key, id: id, began: !s.Began.IsZero(), seen: m.seen, asked: *m.asked, made: m.create}
	return b.start(m.name, b.options.CreateTimeout, func(ctx context.Context, t *task) {
		t.gone, t.err = b.removeAll(ctx, r)
	})
}

type removal struct {
	key string
	// id is the instance in the providerID, if any; it may be somebody else's.
	id string
	// began reports whether a creation was ever begun.
	began bool
	// seen and asked are those of the [machine].
	seen, asked time.Duration
	// made is the last creation of this process, if any. It has ended.
	made *task
}

func (b *Backend) removeAll(ctx context.Context, r removal) (gone bool, err error) {
	ids, err := b.idsOf(ctx, r)
	if err != nil {
		return false, err
	}
	var errs []error
	for id := range ids {
		errs = append(errs, b.fleet.remove(ctx, id))
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	return len(ids) > 0 || b.settled(r), nil
}

func (b *Backend) idsOf(ctx context.Context, r removal) (map[string]bool, error) {
	ids := map[string]bool{}
	if r.made != nil && r.made.instance != nil && r.made.instance.ID != "" {
		ids[r.made.instance.ID] = true
	}
	list, err := b.ofKey(ctx, r.key)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		ids[i.ID] = true
	}
	if r.id == "" || ids[r.id] {
		return ids, nil
	}
	instance, err := b.fleet.get(ctx, r.id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return ids, nil
	case err != nil:
		return nil, err
	case instance.Key == r.key && instance.State != provider.StateDeleting:
		ids[r.id] = true
	}
	return ids, nil
}

// settled reports whether an instance that is not listed cannot exist: none was ever
// asked for, or it would be listed by now. It does not use the wall clock: after a
// jump forward an instance would be leaked, after a jump back a machine would stay too
// long. It uses the time that this process has measured, so after a restart a deletion
// may take up to [Options.Settle] longer.
func (b *Backend) settled(r removal) bool {
	if !r.began && r.made == nil {
		return true
	}
	last := r.asked
	if r.id != "" {
		last = r.seen // its creation got a reply: none came after it
	}
	if r.made != nil {
		last = max(last, r.made.ended)
	}
	return b.options.Elapsed()-last >= b.options.Settle
}
