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
	return answer(ctx, c, OpList, func(s *state) (list []provider.Instance, err error) {
		for _, r := range s.sorted() {
			if provider.HasTags(r.Tags, match) && s.listed(r) {
				list = append(list, r.snapshot())
			}
		}
		return list, nil
	})
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
	instance, err := answer(ctx, c, OpGet, func(s *state) (*provider.Instance, error) {
		r, err := s.existing(instanceID)
		if err != nil {
			return nil, err
		}
		if r.Gets > 0 { // without an error, with which no state is kept
			r.Gets--
			return nil, nil
		}
		instance := r.snapshot()
		return &instance, nil
	})
	if instance == nil && err == nil {
		err = notFound(instanceID)
	}
	return instance, err
}

// Console returns the end of what the instance wrote, or WriteConsole did.
func (c *Cloud) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	if tailBytes < 0 {
		return nil, fmt.Errorf("fake: console: %w: %d bytes", provider.ErrInvalidArgument, tailBytes)
	}
	return answer(ctx, c, OpConsole, func(s *state) ([]byte, error) {
		r, err := s.existing(instanceID)
		if err != nil {
			return nil, err
		}
		return slices.Clone(r.Console[max(0, int64(len(r.Console))-tailBytes):]), nil
	})
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
func (c *Cloud) power(ctx context.Context, op Op, id string, wanted provider.InstanceState) error {
	_, err := answer(ctx, c, op, func(s *state) (struct{}, error) {
		r, err := s.existing(id)
		if err != nil {
			return struct{}{}, err
		}
		switch r.State {
		case wanted:
		case provider.StateRunning, provider.StateStopped:
			r.State = wanted
			r.log("%s", op)
		default:
			err = fmt.Errorf("fake: %s: %w: instance %s is %s", op, provider.ErrUnavailable, id, r.State)
		}
		return struct{}{}, err
	})
	return err
}

// InstanceTypes returns the catalogue.
func (c *Cloud) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	return answer(ctx, c, OpTypes, func(*state) ([]provider.InstanceType, error) { return slices.Clone(c.options.Types), nil })
}
