// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// ListInstances lists by tags, in the order the instances were made.
func (c *Cloud) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("fake: list: %w: no tags to match", provider.ErrInvalidArgument)
	}
	fault, err := c.begin(ctx, OpList)
	if err != nil {
		return nil, err
	}
	var list []provider.Instance
	err = c.store.update(func(s *state) error {
		for _, r := range s.sorted() {
			if matches(r.Tags, match) && s.listed(r) {
				list = append(list, r.snapshot())
			}
		}
		return nil
	})
	if reply := fault.reply(OpList); reply != nil {
		return nil, reply
	}
	return list, err
}

func matches(tags, match map[string]string) bool {
	for key, value := range match {
		if got, ok := tags[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// listed reports whether a list shows the instance, counting down what it does
// not show yet or still shows.
func (s *state) listed(r *record) bool {
	if r.Gone {
		if r.Lists--; r.Lists <= 0 {
			delete(s.Instances, r.ID)
		}
		return true
	}
	if r.Lists > 0 {
		r.Lists--
		return false
	}
	return true
}

// GetInstance looks up one instance.
func (c *Cloud) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	fault, err := c.begin(ctx, OpGet)
	if err != nil {
		return nil, err
	}
	var instance provider.Instance
	hidden := false
	err = c.change(instanceID, func(r *record) {
		if hidden = r.Gets > 0; hidden {
			r.Gets--
		}
		instance = r.snapshot()
	})
	if hidden {
		err = fmt.Errorf("fake: instance %q: %w", instanceID, provider.ErrNotFound)
	}
	if reply := fault.reply(OpGet); reply != nil {
		err = reply
	}
	if err != nil {
		return nil, err
	}
	return &instance, nil
}

// Console returns the end of what the instance wrote, or WriteConsole did.
func (c *Cloud) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	if tailBytes < 0 {
		return nil, fmt.Errorf("fake: console: %w: %d bytes", provider.ErrInvalidArgument, tailBytes)
	}
	fault, err := c.begin(ctx, OpConsole)
	if err != nil {
		return nil, err
	}
	var text []byte
	err = c.change(instanceID, func(r *record) {
		text = slices.Clone(r.Console[max(0, int64(len(r.Console))-tailBytes):])
	})
	if reply := fault.reply(OpConsole); reply != nil {
		return nil, reply
	}
	return text, err
}

// PowerOff stops an instance that is not stopped.
func (c *Cloud) PowerOff(ctx context.Context, instanceID string) error {
	return c.power(ctx, OpPowerOff, instanceID, provider.StateStopped)
}

// PowerOn starts an instance that is stopped.
func (c *Cloud) PowerOn(ctx context.Context, instanceID string) error {
	return c.power(ctx, OpPowerOn, instanceID, provider.StateRunning)
}

// power leaves instances alone that are not made yet or being deleted.
func (c *Cloud) power(ctx context.Context, op Op, id string, state provider.InstanceState) error {
	fault, err := c.begin(ctx, op)
	if err != nil {
		return err
	}
	var wrong provider.InstanceState
	err = c.change(id, func(r *record) {
		switch r.State {
		case state:
		case provider.StateRunning, provider.StateStopped:
			r.State = state
			r.log("%s", op)
		default:
			wrong = r.State
		}
	})
	if err == nil && wrong != "" {
		err = fmt.Errorf("fake: %s: %w: instance %s is %s", op, provider.ErrUnavailable, id, wrong)
	}
	if reply := fault.reply(op); reply != nil {
		return reply
	}
	return err
}

// InstanceTypes returns the catalogue.
func (c *Cloud) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	fault, err := c.begin(ctx, OpTypes)
	if err != nil {
		return nil, err
	}
	return slices.Clone(c.options.Types), fault.reply(OpTypes)
}
