// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	defer explain(&err, "create instance")
	pl, err := p.plan(ctx, podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, err
	}
	m, err := p.findOrMake(ctx, pl)
	if m == nil {
		return nil, err
	}
	return p.answer(m), err
}

// maxGenerations bounds how often one key can be made, deleted and made again
// while the cloud remembers its client tokens.
const maxGenerations = 64

// findOrMake returns a machine, also beside an error, when the caller has
// something to delete.
func (p *Provider) findOrMake(ctx context.Context, pl *plan) (*machine, error) {
	for generation := p.memory.spent.get(pl.token(0)); generation < maxGenerations; generation++ {
		id, err := p.run(ctx, pl, generation)
		if err == nil {
			p.memory.made.put(id, made{at: time.Now()})
			return p.finishNew(ctx, pl, id)
		}
		if !failure.HasCode(err, codeMismatch) {
			return nil, err
		}
		m, err := p.await(ctx, pl)
		if err != nil {
			return nil, err
		}
		if m != nil {
			return p.finish(ctx, m)
		}
		p.memory.spent.put(pl.token(0), generation+1)
	}
	return nil, fmt.Errorf("%w: key %s was made and deleted %d times; use another", provider.ErrAlreadyExists, pl.key, maxGenerations)
}

// finishNew waits until a machine of ours can be used, or removes it.
func (p *Provider) finishNew(ctx context.Context, pl *plan, id string) (*machine, error) {
	m, err := p.appear(ctx, pl, id)
	if err == nil {
		p.memory.made.change(id, func(n *made) { n.seen = true })
	}
	if err == nil && m.id != id {
		// The cloud has forgotten the client token of an earlier instance.
		return p.discard(ctx, &machine{id: id}, m)
	}
	if err == nil {
		m, err = p.finish(ctx, m)
	}
	if err == nil {
		return m, nil
	}
	if m == nil {
		m = &machine{id: id, name: pl.name, tags: pl.tags}
	}
	if ctx.Err() != nil {
		return m, err // the caller is in a hurry, and has the id
	}
	if undone, undoErr := p.discard(ctx, m, nil); undoErr != nil {
		return undone, errors.Join(err, fmt.Errorf("remove what was made: %w", undoErr))
	}
	return nil, err
}

// discard deletes a machine and returns the other one, or that which is left.
func (p *Provider) discard(ctx context.Context, m, instead *machine) (*machine, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.pace.undo)
	defer cancel()
	if err := p.DeleteInstance(ctx, m.id); err != nil {
		return m, err
	}
	return instead, nil
}

// errGone means that somebody has deleted the instance while it was made.
var errGone = fmt.Errorf("%w: the instance was deleted while it was made", provider.ErrUnavailable)

// appear waits until the cloud shows an instance that was just made. If there is
// another of the same key, which is older, it returns that.
func (p *Provider) appear(ctx context.Context, pl *plan, id string) (*machine, error) {
	var m *machine
	seen, err := p.look(ctx, time.Now().Add(p.pace.visible), func() (bool, error) {
		list, err := p.byTags(ctx, pl.owner)
		at := slices.IndexFunc(list, func(m *machine) bool { return m.id == id })
		if err != nil || at < 0 {
			return false, err
		}
		m = cmp.Or(p.oldest(slices.Delete(slices.Clone(list), at, at+1)), list[at])
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for instance %s to appear: %w", id, err)
	}
	if !seen {
		return nil, fmt.Errorf("%s: %w", id, errGone)
	}
	return m, nil
}

// await looks for the instance of a key that somebody else has made. It returns
// nil when there is none any more.
func (p *Provider) await(ctx context.Context, pl *plan) (*machine, error) {
	deadline := time.Now().Add(p.pace.visible)
	for t := p.pace.ticker(); ; {
		list, err := p.byTags(ctx, pl.owner)
		if err != nil {
			return nil, err
		}
		if m := p.oldest(list); m != nil {
			return m, nil
		}
		// One that is stopping may be on its way out, or stay.
		leaving := slices.ContainsFunc(list, func(m *machine) bool { return !p.memory.deleted.get(m.id) })
		if !leaving && t.Over(deadline) {
			return nil, nil
		}
		if err := t.Wait(ctx); err != nil {
			return nil, fmt.Errorf("look for the instance of key %s: %w", pl.key, err)
		}
	}
}

// oldest returns the first made of those that stay.
func (p *Provider) oldest(list []*machine) *machine {
	stay := slices.DeleteFunc(slices.Clone(list), func(m *machine) bool {
		return !m.ours() || m.status == statusStopping || p.memory.deleted.get(m.id)
	})
	if len(stay) == 0 {
		return nil
	}
	return slices.MinFunc(stay, func(a, b *machine) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id))
	})
}

// finish waits for the addresses of a machine, and gives it the one of its own
// that its tags ask for.
func (p *Provider) finish(ctx context.Context, m *machine) (*machine, error) {
	deadline := time.Now().Add(p.pace.visible)
	for t := p.pace.ticker(); !p.complete(m); {
		if t.Over(deadline) && (m.status == statusRunning || m.status == statusStopped) {
			return m, fmt.Errorf("%w: instance %s was made with other settings: it lacks the address or interface that they ask for now", provider.ErrAlreadyExists, m.id)
		}
		if err := t.Wait(ctx); err != nil {
			return m, fmt.Errorf("wait for the address of instance %s: %w", m.id, err)
		}
		seen, err := p.byID(ctx, m.id)
		if err != nil {
			return m, err
		}
		if seen == nil {
			return m, fmt.Errorf("%s: %w", m.id, errGone)
		}
		m = seen
	}
	if m.tags[tagAddress] == "" {
		return m, nil
	}
	return m, p.giveAddress(ctx, m)
}

// complete reports whether the cloud has told all that finish needs.
func (p *Provider) complete(m *machine) bool {
	switch m.tags[tagAddress] {
	case addressPrimary:
		return m.private.IsValid()
	case addressEgress:
		if m.second == "" {
			return false
		}
	}
	_, ok := p.address(m)
	return ok
}
