// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider/kit/names"
)

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

// destroy removes a VM and its disks, in whatever state it is.
func (p *Provider) destroy(ctx context.Context, w *watcher, ref types.ManagedObjectReference, on bool) error {
	vm := object.NewVirtualMachine(w.client, ref)
	err := p.pace.Until(ctx, func() (bool, error) {
		if on {
			if err := p.stop(ctx, w, ref); err != nil {
				return true, err
			}
		}
		err := w.run(ctx, func() (*object.Task, error) { return vm.Destroy(ctx) })
		if is[*types.InvalidPowerState](err) {
			on = true // somebody has started it
			return false, nil
		}
		return !busy(err), err
	})
	if isGone(err, ref) {
		return nil
	}
	return err
}
