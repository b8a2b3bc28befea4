// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

var errDeleted = errors.New("the instance was deleted while it was being made")

// request is a checked request for an instance.
type request struct {
	name, key, kind, image string
	spec                   provider.InstanceTypeSpec
	cloudConfig            cloudinit.CloudConfigGenerator
}

// CreateInstance makes an instance, finishes one that an earlier call with
// the key left unfinished, or returns the one there is. A key that is taken
// with another type or image is ErrAlreadyExists.
func (c *Cloud) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	fault, err := c.begin(ctx, OpCreate)
	if err != nil {
		return nil, err
	}
	req, err := c.check(podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, fmt.Errorf("fake: create: %w", err)
	}
	unlock, err := c.store.lockKey(ctx, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("fake: create: %w: %w", provider.ErrUnavailable, err)
	}
	defer unlock()
	instance, err := c.create(ctx, req, fault.Effect == EffectPartial)
	if err != nil {
		return unfinished(instance), fmt.Errorf("fake: create: %w", err)
	}
	switch reply := fault.reply(OpCreate); {
	case reply == nil:
		return &instance, nil
	case fault.Effect == EffectPartial:
		return unfinished(instance), reply
	default:
		return nil, reply
	}
}

// unfinished returns the instance to return with an error: id and name, for the
// caller to delete it, or nil if nothing is left.
func unfinished(instance provider.Instance) *provider.Instance {
	if instance.ID == "" {
		return nil
	}
	return &provider.Instance{ID: instance.ID, Name: instance.Name}
}

func (c *Cloud) check(podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (request, error) {
	req := request{name: provider.InstanceName(podName, key), key: key, image: spec.Image, spec: spec, cloudConfig: cloudConfig}
	if key == "" {
		return req, fmt.Errorf("%w: the sandbox id is empty", provider.ErrInvalidArgument)
	}
	if req.image == "" {
		req.image = c.options.Images[0]
	}
	if !slices.Contains(c.options.Images, req.image) {
		return req, fmt.Errorf("image %q: %w", req.image, provider.ErrNotFound)
	}
	if zones := c.options.Disks.Zones; spec.Zone != "" && !slices.Contains(zones, spec.Zone) {
		return req, fmt.Errorf("%w: no zone %q, but %q", provider.ErrInvalidArgument, spec.Zone, zones)
	}
	var err error
	req.kind, err = instancetypes.Select(spec, c.options.Types, c.options.DefaultType)
	return req, err
}

// create makes the instance under the lock of the key. With an error it returns the
// instance that is left, if any.
func (c *Cloud) create(ctx context.Context, req request, partial bool) (provider.Instance, error) {
	r, err := c.reserve(req)
	if err != nil || r.Ready || partial {
		return r.Instance, err
	}
	addrs, err := c.boot(ctx, r)
	if err != nil {
		return c.undo(ctx, r.Instance, err)
	}
	instance, err := c.finish(r.ID, addrs)
	if err != nil {
		return c.undo(ctx, r.Instance, err)
	}
	return instance, nil
}

// reserve returns the instance of the key, making one in state pending if
// there is none.
func (c *Cloud) reserve(req request) (record, error) {
	existing, err := c.lookup(req)
	if err != nil || existing.ID != "" {
		return existing, err
	}
	userData, err := userdata.Generate(req.cloudConfig)
	if err != nil {
		return record{}, err
	}
	var made record
	err = c.store.update(func(s *state) error {
		r, err := c.add(s, req, userData)
		if err == nil {
			made = *r
			made.Instance = r.snapshot()
		}
		return err
	})
	return made, err
}

func (c *Cloud) lookup(req request) (existing record, err error) {
	err = c.store.update(func(s *state) error {
		r := s.byKey(req.key)
		if r == nil {
			return nil
		}
		if r.Type != req.kind || r.Image != req.image {
			return fmt.Errorf("%w: instance %s of the same sandbox is a %s of image %s, not a %s of image %s",
				provider.ErrAlreadyExists, r.ID, r.Type, r.Image, req.kind, req.image)
		}
		existing = *r
		existing.Instance = r.snapshot()
		return nil
	})
	return existing, err
}

func (c *Cloud) add(s *state, req request, userData string) (*record, error) {
	if c.options.Capacity > 0 && s.count() >= c.options.Capacity {
		return nil, fmt.Errorf("%w: all %d instances are taken", provider.ErrCapacity, c.options.Capacity)
	}
	nics := 1
	if c.options.DedicatedNIC {
		nics = 2
	}
	addrs, err := s.freeAddresses(c.options.Network, nics)
	if err != nil {
		return nil, err
	}
	s.Serial++
	now := c.options.Now().UTC()
	r := &record{
		Instance: provider.Instance{
			ID: fmt.Sprintf("fake-%06d", s.Serial), Name: req.name, IPs: addrs, Key: req.key,
			Tags: maps.Clone(req.spec.Tags), Created: now, State: provider.StatePending,
			Zone: cmp.Or(req.spec.Zone, instanceZone), Region: "fake", Type: req.kind,
		},
		Image: req.image, UserData: userData,
		Lists: c.options.Eventual.Lists, Gets: c.options.Eventual.Gets,
	}
	r.log("%s: %s from image %s", r.Name, r.Type, r.Image)
	s.Instances[r.ID] = r
	if req.spec.MultiNic {
		nics++
	}
	c.addResources(s, r, nics)
	return r, nil
}

func (c *Cloud) addResources(s *state, r *record, nics int) {
	s.made(r, KindInstance, r.ID, r.Created)
	s.made(r, KindDisk, r.ID+"-disk", r.Created)
	for i := range nics {
		s.made(r, KindNIC, fmt.Sprintf("%s-nic%d", r.ID, i), r.Created)
	}
	for _, addr := range r.IPs {
		s.made(r, KindAddress, r.ID+"-"+addr.String(), r.Created)
	}
}

// boot runs the hook until it ends, ctx ends or the instance is deleted.
func (c *Cloud) boot(ctx context.Context, r record) ([]netip.Addr, error) {
	if c.options.Boot == nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.mu.Lock()
	c.booting[r.ID] = cancel
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.booting, r.ID)
		c.mu.Unlock()
	}()
	addrs, err := c.options.Boot(ctx, BootRequest{Instance: r.Instance, UserData: r.UserData})
	if err == nil {
		return addrs, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%w: boot: %w", provider.ErrUnavailable, cause)
	}
	return nil, fmt.Errorf("boot: %w", err)
}

// finish sets a reserved instance to running. If it was marked for deletion meanwhile
// that is an error, and the caller ends its guest.
func (c *Cloud) finish(id string, addrs []netip.Addr) (provider.Instance, error) {
	var instance provider.Instance
	err := c.store.update(func(s *state) error {
		r := s.live(id)
		if r == nil || r.State == provider.StateDeleting {
			return fmt.Errorf("%w: %w", provider.ErrUnavailable, errDeleted)
		}
		if len(addrs) > 0 {
			r.IPs = slices.Clone(addrs)
		}
		r.State, r.Ready = provider.StateRunning, true
		r.log("running")
		instance = r.snapshot()
		return nil
	})
	return instance, err
}

// undo removes the instance of a creation that failed with cause, even if ctx has
// ended. It returns the instance if it cannot be removed.
func (c *Cloud) undo(ctx context.Context, instance provider.Instance, cause error) (provider.Instance, error) {
	err := c.halt(context.WithoutCancel(ctx), instance)
	if err == nil {
		err = c.remove(instance.ID)
	}
	if err != nil {
		return instance, fmt.Errorf("%w; undo: %w", cause, err)
	}
	return provider.Instance{}, cause
}
