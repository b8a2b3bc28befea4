// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

var (
	errVanished = fmt.Errorf("%w: the VM was deleted while it was being made", provider.ErrUnavailable)
	errUnshown  = fmt.Errorf("%w: Azure has accepted the VM and does not show it", provider.ErrUnavailable)
)

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	cluster := spec.Tags[provider.TagCluster]
	c := &creation{Provider: p, ref: p.ref(vmName(cluster, sandboxID)), key: sandboxID, cluster: cluster}
	defer explain(&err, "create instance %s", c.name)
	ctx, leave := p.creations.enter(ctx, c.name)
	defer leave()
	unlock, err := p.locks.Take(ctx, c.name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c.run(ctx, podName, cloudConfig, spec)
}

// creation is one call of CreateInstance.
type creation struct {
	*Provider
	ref
	key, cluster string

	// exists is set if there may be a VM; mine if this call created it; unsure
	// if it may still appear later.
	exists, mine, unsure bool
}

func (c *creation) run(ctx context.Context, podName string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	pl, err := c.plan(ctx, podName, c.key, cloudConfig, spec)
	if err != nil {
		return c.existingOrError(ctx, err)
	}
	instance, err := c.build(ctx, pl)
	if err == nil {
		return instance, nil
	}
	if noRoom(err) && !c.exists {
		c.lookForRemains(ctx, pl)
	}
	if c.mine {
		return c.takeBack(ctx, err)
	}
	if c.exists {
		return &provider.Instance{ID: c.id(c.ref)}, err
	}
	return nil, err
}

// existingOrError returns the instance of a key that is asked for again in a way that
// cannot be.
func (c *creation) existingOrError(ctx context.Context, cause error) (*provider.Instance, error) {
	if !errors.Is(cause, provider.ErrInvalidArgument) {
		return nil, cause
	}
	vm, err := c.getVM(ctx, c.ref)
	if err != nil || vm == nil || !c.owns(vm) || !isPlaced(vm) {
		return nil, cause
	}
	instance, err := c.answer(ctx, vm)
	if err != nil || instance == nil {
		return nil, cause
	}
	return instance, nil
}

// build tries one place after the other as long as they have no room.
func (c *creation) build(ctx context.Context, pl *plan) (*provider.Instance, error) {
	full := func(err error) bool { return noRoom(err) && ctx.Err() == nil }
	return places.Try(pl.candidates, full, func(at places.Place) (*provider.Instance, error) {
		instance, err := c.buildAt(ctx, pl, at)
		if err == nil {
			return instance, nil
		}
		err = classify(fmt.Errorf("VM size %s, image %s: %w", at, pl.image.id, err))
		if !full(err) || !c.mine {
			return nil, err
		}
		if left := c.removeAndWait(ctx, pl.maker); left != nil {
			return nil, fmt.Errorf("%w; and what it left cannot be removed: %v", classify(left), err)
		}
		c.exists, c.mine = false, false
		return nil, err
	})
}

// lookForRemains looks for a failed VM that a refused PUT may have left.
func (c *creation) lookForRemains(ctx context.Context, pl *plan) {
	vm, err := c.getVM(ctx, c.ref)
	c.exists = err != nil || vm != nil
	c.mine = vm != nil && deref(vm.Tags[tagMaker]) == pl.maker
}

// removeAndWait deletes the VM of a maker and waits until its name is free, or
// somebody else's.
func (c *creation) removeAndWait(ctx context.Context, maker string) error {
	if _, err := c.remove(ctx, c.ref); err != nil {
		return err
	}
	return c.tempo.ask.Until(ctx, func() (bool, error) {
		vm, err := c.getVM(ctx, c.ref)
		return err == nil && (vm == nil || deref(vm.Tags[tagMaker]) != maker), err
	})
}

func noRoom(err error) bool {
	return errors.Is(err, provider.ErrCapacity) || errors.Is(err, provider.ErrQuota)
}

// buildAt makes the VM, or waits for the one that is there.
func (c *creation) buildAt(ctx context.Context, pl *plan, at places.Place) (*provider.Instance, error) {
	begin := time.Now()
	for {
		err := c.put(ctx, c.model(c.name, pl, at))
		if err == nil {
			return c.await(ctx)
		}
		if !isTaken(err) {
			return nil, err
		}
		instance, seen, adoptErr := c.adopt(ctx, pl)
		if instance != nil || adoptErr != nil {
			return instance, adoptErr
		}
		if !seen && time.Since(begin) > c.tempo.lag {
			return nil, err
		}
		if err := poll.Sleep(ctx, c.tempo.ask.First); err != nil {
			return nil, err
		}
	}
}

// isTaken reports whether a PUT was refused for a VM that is there, maybe on its
// way out.
func isTaken(err error) bool {
	return isStatus(err, http.StatusPreconditionFailed) ||
		isStatus(err, http.StatusConflict) && errors.Is(classify(err), provider.ErrUnavailable)
}

// put sends the PUT, which goes on for a moment when ctx ends: better to know
// what came of it.
func (c *creation) put(ctx context.Context, vm armcompute.VirtualMachine) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	late, stop := outlive(ctx, c.tempo.grace)
	defer stop()
	var sent atomic.Int64
	_, err := c.cloud.vms.BeginCreateOrUpdate(context.WithValue(late, attemptsKey{}, &sent), c.group, c.name, vm,
		&armcompute.VirtualMachinesClientBeginCreateOrUpdateOptions{IfNoneMatch: to.Ptr("*")})
	switch {
	case err == nil:
		c.exists, c.mine = true, true
	case isTaken(err):
		// If an attempt before the last one did it, the VM says so itself.
		c.exists = true
	case sent.Load() == 0:
		// There was no token, or no connection to ask for one.
	case !refusedForGood(err) || sent.Load() > 1:
		c.exists, c.mine, c.unsure = true, true, true
	}
	return err
}

// outlive returns a context that ends d after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, func()) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(late, func() { timer.Stop() })
	})
	return late, func() { stop(); cancel(nil) }
}

// await waits for the VM that this call has made.
func (c *creation) await(ctx context.Context) (*provider.Instance, error) {
	var instance *provider.Instance
	begin, shown := time.Now(), false
	err := c.tempo.ask.Until(ctx, func() (bool, error) {
		vm, err := c.getVM(ctx, c.ref)
		switch {
		case err != nil:
			return false, err
		case vm == nil && !shown && time.Since(begin) > c.tempo.lag:
			return false, errUnshown
		case vm == nil && !shown:
			return false, nil
		case vm == nil, provisioning(vm) == provisioningDeleting:
			c.exists, c.mine = false, false // and what has its name now is not ours
			return false, errVanished
		case failed(vm):
			return false, failureOf(vm)
		}
		shown = true
		if isPlaced(vm) {
			instance, err = c.answer(ctx, vm)
		}
		return instance != nil, err
	})
	return instance, err
}

// answer returns nil while the address is not known.
func (c *creation) answer(ctx context.Context, vm *armcompute.VirtualMachine) (*provider.Instance, error) {
	instance := c.describe(c.ref, vm, values(vm.Tags))
	var err error
	instance.IPs, err = c.addresses(ctx, vm)
	if err != nil || len(instance.IPs) == 0 {
		return nil, err
	}
	return instance, nil
}

func (c *creation) owns(vm *armcompute.VirtualMachine) bool {
	tags := values(vm.Tags)
	return tags[provider.TagKey] == c.key && tags[provider.TagCluster] == c.cluster
}

// adopt waits for a VM that is there already. It returns none when that has
// gone, and whether it was ever seen.
func (c *creation) adopt(ctx context.Context, pl *plan) (instance *provider.Instance, seen bool, err error) {
	begin := time.Now()
	err = c.tempo.ask.Until(ctx, func() (bool, error) {
		vm, err := c.getVM(ctx, c.ref)
		if err != nil || vm == nil {
			return vm == nil, err
		}
		seen = true
		switch {
		case !c.owns(vm):
			c.exists = false
			return false, fmt.Errorf("%w: a VM of that name is somebody else's", provider.ErrAlreadyExists)
		case provisioning(vm) == provisioningDeleting:
			return false, nil
		case failed(vm):
			return false, c.clear(ctx, vm, pl, begin)
		case isPlaced(vm):
			instance, err = c.answer(ctx, vm)
		}
		c.mine = deref(vm.Tags[tagMaker]) == pl.maker
		return instance != nil, err
	})
	if err == nil && instance == nil {
		c.exists, c.mine = false, false
	}
	return instance, seen, err
}

// clear removes a VM whose creation has failed, when its maker does not.
func (c *creation) clear(ctx context.Context, vm *armcompute.VirtualMachine, pl *plan, since time.Time) error {
	if deref(vm.Tags[tagMaker]) != pl.maker && time.Since(since) < c.tempo.abandoned {
		return nil
	}
	logger().Info("removing a VM whose creation has failed", "instance", c.name, "sandbox", c.key)
	_, err := c.remove(ctx, c.ref)
	return err
}

// takeBack removes what this call has made, or returns it to be deleted.
func (c *creation) takeBack(ctx context.Context, cause error) (*provider.Instance, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.tempo.undo)
	defer cancel()
	gone, err := c.remove(ctx, c.ref)
	if err == nil && gone {
		err = c.sweep(ctx, c.ref)
	}
	if err != nil {
		return &provider.Instance{ID: c.id(c.ref)}, errors.Join(classify(cause), classify(fmt.Errorf("remove what was made: %w", err)))
	}
	if gone && c.unsure {
		return &provider.Instance{ID: c.id(c.ref)}, cause // it may still come
	}
	return nil, cause
}

// creations are those that are running, so that a deletion can end them.
type creations struct {
	mu      sync.Mutex
	running map[string][]*context.CancelCauseFunc
}

func (c *creations) enter(ctx context.Context, name string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[string][]*context.CancelCauseFunc{}
	}
	c.running[name] = append(c.running[name], &cancel)
	return ctx, func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		rest := slices.DeleteFunc(c.running[name], func(other *context.CancelCauseFunc) bool { return other == &cancel })
		if c.running[name] = rest; len(rest) == 0 {
			delete(c.running, name)
		}
	}
}

// end ends the creations of a VM.
func (c *creations) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cancel := range c.running[name] {
		(*cancel)(errVanished)
	}
}
