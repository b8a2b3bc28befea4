// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/capi"
	"github.com/outrigger/outrigger/provider"
)

// DeleteMachine ends a creation that is still running, then removes every
// instance of the key in the background.
func (b *Backend) DeleteMachine(_ context.Context, s *capi.MachineScope) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machine(s)
	if m.create.running() {
		m.create.end() // it wakes us
		return false, nil
	}
	if m.remove == nil {
		m.remove = b.remove(m, s)
	}
	t := m.remove
	if t.running() {
		return false, nil
	}
	m.remove = nil // what follows is another attempt
	if t.gone && t.err == nil {
		delete(b.machines, s.Key)
		return true, nil
	}
	return false, t.err
}

// remove starts a removal. Lists are by the key alone: the cluster may be gone.
func (b *Backend) remove(m *machine, s *capi.MachineScope) *task {
	spec, _ := s.Infra.ContractMachine()
	id, _ := strings.CutPrefix(spec.ProviderID, b.prefix())
	if id == spec.ProviderID {
		id = ""
	}
	r := removal{key: s.Key, id: id, began: s.Began, made: m.create}
	if at := s.Infra.GetDeletionTimestamp(); at != nil {
		r.asked = at.Time
	}
	return b.start(m.name, b.options.CreateTimeout, func(ctx context.Context, t *task) {
		t.gone, t.err = b.removeAll(ctx, r)
	})
}

// removal is what is known of a machine that is to go.
type removal struct {
	key string
	// id is the instance in the providerID, if any; it may be somebody else's.
	id string
	// began is when the first creation began, asked when the deletion was asked
	// for.
	began, asked time.Time
	// made is the last creation of this process, if any. It has ended.
	made *task
}

func (r removal) ended() time.Time {
	if r.made == nil {
		return time.Time{}
	}
	return r.made.ended
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

// idsOf answers the instances that carry the key.
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

// settled says whether an instance that no list shows cannot be there either:
// none was ever asked for, or it would be shown by now.
func (b *Backend) settled(r removal) bool {
	if r.began.IsZero() && r.made == nil {
		return true
	}
	last := r.began
	if r.id == "" { // else its creation was answered: none came after it
		last = slices.MaxFunc([]time.Time{r.asked, b.started, r.ended()}, time.Time.Compare)
	}
	return b.options.Now().Sub(last) >= b.options.Settle
}
