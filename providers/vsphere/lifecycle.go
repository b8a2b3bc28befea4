// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// PowerOff ends the VM as if its plug was pulled, and keeps its disks: to the
// pod's containers it makes no difference. Its addresses are written down
// first, since a VM that is off reports none.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.whileLocked(ctx, instanceID, func(w *watcher, m *machine) error {
		if !m.on() {
			return nil
		}
		if err := p.writeAddresses(ctx, w, m); err != nil {
			return err
		}
		return p.stop(ctx, w, m.ref)
	})
}

// PowerOn starts the VM.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.whileLocked(ctx, instanceID, func(w *watcher, m *machine) error {
		if m.on() {
			return nil
		}
		return p.start(ctx, w, m.ref)
	})
}

func (p *Provider) whileLocked(ctx context.Context, id string, do func(*watcher, *machine) error) error {
	return p.locked(ctx, id, func(w *watcher) error {
		m, err := p.existing(ctx, w.client, id)
		if err != nil {
			return err
		}
		err = do(w, m)
		if isGone(err, m.ref) {
			return fmt.Errorf("%w: instance %s was deleted", provider.ErrNotFound, id)
		}
		return err
	})
}

// locked calls do while nobody else in this process works on the instance.
func (p *Provider) locked(ctx context.Context, id string, do func(*watcher) error) error {
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := p.conn.open(ctx)
	if err != nil {
		return err
	}
	w := &watcher{client: c}
	defer w.close(ctx)
	return do(w)
}

func (p *Provider) writeAddresses(ctx context.Context, w *watcher, m *machine) error {
	if m.record == nil || len(m.addrs) == 0 {
		return nil
	}
	m.record.Addrs = m.addrs
	option, err := m.record.option()
	if err != nil {
		return err
	}
	vm := object.NewVirtualMachine(w.client, m.ref)
	return p.untilFree(ctx, func() error {
		return w.run(ctx, func() (*object.Task, error) {
			return vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{option, forgotten()}})
		})
	})
}

// run starts a task and waits for its end.
func (w *watcher) run(ctx context.Context, begin func() (*object.Task, error)) error {
	task, err := begin()
	if err != nil {
		return err
	}
	_, err = w.await(ctx, task.Reference())
	return err
}

// untilFree tries again while somebody else works on the VM.
func (p *Provider) untilFree(ctx context.Context, do func() error) error {
	return p.pace.Until(ctx, func() (bool, error) {
		err := do()
		if busy(err) {
			return false, nil
		}
		return true, err
	})
}

// stop ends a VM that runs; one that does not is fine.
func (p *Provider) stop(ctx context.Context, w *watcher, ref types.ManagedObjectReference) error {
	return p.power(ctx, w, object.NewVirtualMachine(w.client, ref).PowerOff)
}

func (p *Provider) start(ctx context.Context, w *watcher, ref types.ManagedObjectReference) error {
	return p.power(ctx, w, object.NewVirtualMachine(w.client, ref).PowerOn)
}

func (p *Provider) power(ctx context.Context, w *watcher, change func(context.Context) (*object.Task, error)) error {
	err := p.untilFree(ctx, func() error {
		return w.run(ctx, func() (*object.Task, error) { return change(ctx) })
	})
	if is[*types.InvalidPowerState](err) {
		return nil // it is in that state already
	}
	return err
}

// DeleteInstance implements provider.Provider.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	if !names.IsUUID(instanceID) {
		return nil // nothing of ours has such an id
	}
	return p.locked(ctx, instanceID, func(w *watcher) error { return p.remove(ctx, w, instanceID) })
}

func (p *Provider) remove(ctx context.Context, w *watcher, id string) error {
	m, err := p.find(ctx, w.client, id)
	if err != nil || m == nil {
		return err
	}
	if m, err = p.settled(ctx, w.client, m); err != nil || m == nil {
		return err
	}
	return p.destroy(ctx, w, m.ref, m.on())
}

// destroy removes a VM and its own disks, in whatever state it is.
func (p *Provider) destroy(ctx context.Context, w *watcher, ref types.ManagedObjectReference, on bool) error {
	vm := object.NewVirtualMachine(w.client, ref)
	err := p.pace.Until(ctx, func() (bool, error) {
		if on {
			if err := p.stop(ctx, w, ref); err != nil {
				return true, err
			}
		}
		err := p.keepForeign(ctx, w, ref)
		if err == nil {
			err = w.run(ctx, func() (*object.Task, error) { return vm.Destroy(ctx) })
		}
		if is[*types.InvalidPowerState](err) {
			on = true // somebody has started it
			return false, nil
		}
		if busy(err) { // also if its disks have changed since
			return false, nil
		}
		return true, err
	})
	if isGone(err, ref) {
		return nil
	}
	return err
}
