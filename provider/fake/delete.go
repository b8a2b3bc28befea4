// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"

	"github.com/outrigger/outrigger/provider"
)

// DeleteInstance removes an instance with its interfaces, disk and addresses. Disks that
// were attached stay.
// A creation of it that is running in this process is cancelled.
func (c *Cloud) DeleteInstance(ctx context.Context, instanceID string) error {
	if instanceID == "" {
		return fmt.Errorf("fake: delete: %w: the instance id is empty", provider.ErrInvalidArgument)
	}
	fault, err := c.begin(ctx, OpDelete)
	if err != nil {
		return err
	}
	kinds := []Kind{}
	if fault.Effect == EffectPartial {
		kinds = append(kinds, KindInstance)
	}
	if err := c.delete(ctx, instanceID, kinds...); err != nil {
		return fmt.Errorf("fake: delete %s: %w", instanceID, err)
	}
	return fault.reply(OpDelete)
}

// delete marks the instance first, so that a creation which ends now, also in
// another process, sees the mark and ends its guest itself.
func (c *Cloud) delete(ctx context.Context, id string, kinds ...Kind) error {
	var instance provider.Instance
	err := c.store.update(func(s *state) error {
		if r := s.live(id); r != nil {
			r.State = provider.StateDeleting
			instance = r.snapshot()
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.cancelBoot(id)
	if instance.ID != "" {
		if err := c.halt(ctx, instance); err != nil {
			return err
		}
	}
	return c.remove(id, kinds...)
}

func (c *Cloud) cancelBoot(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.booting[id]; cancel != nil {
		cancel(errDeleted)
	}
}

func (c *Cloud) halt(ctx context.Context, instance provider.Instance) error {
	if c.options.Halt == nil {
		return nil
	}
	if err := c.options.Halt(ctx, instance); err != nil {
		return fmt.Errorf("halt: %w", err)
	}
	return nil
}

// remove takes the instance and its resources, or those of kinds, away.
func (c *Cloud) remove(id string, kinds ...Kind) error {
	return c.store.update(func(s *state) error {
		s.deleted(id, c.options.Now().UTC(), kinds...)
		s.detachAll(id)
		r := s.live(id)
		if r == nil {
			return nil
		}
		if c.options.Eventual.Lingers == 0 {
			delete(s.Instances, id)
			return nil
		}
		r.Gone, r.State, r.IPs, r.UserData = true, provider.StateDeleting, nil, ""
		r.Lists = c.options.Eventual.Lingers
		return nil
	})
}
