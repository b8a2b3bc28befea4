// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/provider/kit/failure"
)

// DeleteInstance implements provider.Provider. It returns when the machine has
// been told to reboot; the machine is given away again when it has.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	if !isID(instanceID) {
		return nil // nothing of ours has such an id
	}
	unlock, err := p.locks.Take(ctx, instanceID)
	if err != nil {
		return failure.Classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	defer unlock()
	if err := p.discard(ctx, instanceID); err != nil {
		return failure.Classify(fmt.Errorf("delete instance %s: %w", instanceID, err))
	}
	return nil
}

func (p *Provider) discard(ctx context.Context, id string) error {
	addr, err := p.beginRelease(ctx, id)
	if err != nil || !addr.IsValid() {
		return err
	}
	m, err := p.connect(ctx, addr)
	if err != nil {
		return err
	}
	defer m.close()
	return p.release(ctx, m, id)
}

// beginRelease takes the machine from a creation that may be running, and
// returns it, or none when there is no such instance.
func (p *Provider) beginRelease(ctx context.Context, id string) (addr netip.Addr, err error) {
	err = p.store.change(ctx, func(st state) (bool, error) {
		var e *entry
		if addr, e = st.of(id); e == nil || e.Phase == phaseReleasing {
			return false, nil
		}
		e.Phase, e.Since = phaseReleasing, time.Now().UTC()
		return true, nil
	})
	return addr, err
}

// release reboots the machine, unless it has rebooted, and frees it. The
// instance is listed until the machine is certain to reboot.
func (p *Provider) release(ctx context.Context, m *machine, id string) error {
	if _, err := p.beginRelease(ctx, id); err != nil {
		return err
	}
	now, err := m.boot(ctx)
	if err != nil {
		return err
	}
	st, err := p.store.read(ctx)
	if err != nil {
		return err
	}
	e := st[m.addr]
	if e == nil || e.ID != id {
		return nil // somebody else has done it
	}
	if e.Boot == "" || e.Boot == now {
		if err := m.put(ctx, rebootFile, "reboot\n"); err != nil && !errors.Is(err, errThere) {
			return err
		}
	}
	return p.endRelease(ctx, m.addr, id, e.Boot, now)
}

func (p *Provider) endRelease(ctx context.Context, addr netip.Addr, id, boot, now string) error {
	if boot == "" {
		boot = now // it was never made, and reboots now
	}
	return p.store.change(ctx, func(st state) (bool, error) {
		e := st[addr]
		if e == nil || e.ID != id {
			return false, nil
		}
		st[addr] = &entry{Phase: phaseResetting, Since: time.Now().UTC(), Boot: boot}
		return true, nil
	})
}
