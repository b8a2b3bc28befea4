// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// AttachDisk implements provider.DiskController. The action names the disk alone, and not all that the VM has, as
// an update of the VM would: two at a time lose nothing.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", last(diskID), last(instanceID))
	id, err := p.parseVolume(kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	r, ok := p.parseID(instanceID)
	if !ok {
		return nil, cmp.Or(p.elsewhere(instanceID), errNoInstance(instanceID))
	}
	unlock, err := p.locks.Take(ctx, disksOf(r))
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = p.tempo.ask.Until(ctx, func() (bool, error) {
		vm, err := p.getVM(ctx, r)
		if err == nil && vm == nil {
			err = errNoInstance(instanceID)
		}
		if err != nil {
			return false, err
		}
		made, err = p.attachStep(ctx, id, r, vm)
		return made != nil, err
	})
	return made, err
}

// disksOf returns the name of the lock under which a VM's disks are changed: Azure does one of its changes at a time.
func disksOf(r ref) string { return "disks of " + r.name }

// attachStep returns the attachment if the VM has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, id string, r ref, vm *armcompute.VirtualMachine) (*provider.Attachment, error) {
	v, err := p.getVolume(ctx, id)
	if err != nil {
		return nil, err
	}
	has, ours := p.dataDisk(vm, id), p.instanceOf(v.ManagedBy) == p.id(p.ref(r.name))
	switch {
	case v.ManagedBy != "" && !ours: // first: it does not go by itself, as a VM's state does
		return nil, fmt.Errorf("%w: VM %s has it", provider.ErrInUse, last(v.ManagedBy))
	case provisioning(vm) == provisioningDeleting || !isPlaced(vm):
		return nil, fmt.Errorf("%w: the VM has the state %s", provider.ErrUnavailable, provisioning(vm))
	case provisioning(vm) == provisioningUpdating:
		return nil, nil
	case has != nil && deref(has.ToBeDetached): // and that has failed
		return nil, p.changeDisks(ctx, r, armcompute.AttachDetachDataDisksRequest{DataDisksToDetach: []*armcompute.DataDisksToDetach{{DiskID: to.Ptr(id)}}})
	case has != nil && ours:
		return &provider.Attachment{Serial: fmt.Sprint(provider.SerialLUN, deref(has.Lun))}, nil
	case v.Properties.MaxShares > 1:
		return nil, fmt.Errorf("%w: it is for several VMs at a time (maxShares)", provider.ErrInvalidArgument)
	case v.SKU == nil || !strings.HasSuffix(v.SKU.Name, zoneRedundant):
		if zone := zoneOf(vm); zone != v.zone() {
			return nil, fmt.Errorf("%w: the disk is in zone %q, and the VM in zone %q", provider.ErrInvalidArgument, v.zone(), zone)
		}
	}
	return nil, p.changeDisks(ctx, r, armcompute.AttachDetachDataDisksRequest{DataDisksToAttach: []*armcompute.DataDisksToAttach{{
		DiskID: to.Ptr(id), DeleteOption: to.Ptr(armcompute.DiskDeleteOptionTypesDetach),
		Caching: to.Ptr(armcompute.CachingTypesNone), // which disks of every size and type can have
	}}})
}

// dataDisk returns what the VM's model says of a disk; nil if nothing.
func (p *Provider) dataDisk(vm *armcompute.VirtualMachine, id string) *armcompute.DataDisk {
	if vm.Properties == nil || vm.Properties.StorageProfile == nil {
		return nil
	}
	list := vm.Properties.StorageProfile.DataDisks
	i := slices.IndexFunc(list, func(d *armcompute.DataDisk) bool {
		return d.ManagedDisk != nil && strings.EqualFold(deref(d.ManagedDisk.ID), id)
	})
	if i < 0 {
		return nil
	}
	return list[i]
}

// changeDisks returns when Azure has done it, or something else was under way.
func (p *Provider) changeDisks(ctx context.Context, r ref, request armcompute.AttachDetachDataDisksRequest) error {
	poller, err := p.cloud.vms.BeginAttachDetachDataDisks(ctx, r.group, r.name, request, nil)
	if _, err = wait(ctx, p.tempo.ask, nil, poller, err); busy(err) {
		return nil
	}
	return err
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", last(diskID), last(instanceID))
	id, err := p.parseVolume(kindDisk, diskID)
	r, ok := p.parseID(instanceID)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !ok:
		return p.elsewhere(instanceID)
	}
	unlock, err := p.locks.Take(ctx, disksOf(r))
	if err != nil {
		return err
	}
	defer unlock()
	return p.tempo.ask.Until(ctx, func() (bool, error) {
		vm, err := p.getVM(ctx, r)
		if err != nil || vm == nil || p.dataDisk(vm, id) == nil {
			return vm == nil || p.dataDisk(vm, id) == nil, err
		}
		if state := provisioning(vm); state == provisioningDeleting || state == provisioningUpdating {
			return false, nil // with the VM its disks are let go
		}
		return false, p.changeDisks(ctx, r, armcompute.AttachDetachDataDisksRequest{DataDisksToDetach: []*armcompute.DataDisksToDetach{{DiskID: to.Ptr(id)}}})
	})
}

// ResizeDisk implements provider.DiskController. A guest that has the disk looks at its size itself.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk %s", last(diskID))
	id, err := p.parseVolume(kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	size, err := disks.GiB(bytes, 0, 1, maxGiB)
	if err != nil {
		return nil, err
	}
	var v *volume
	err = p.tempo.ask.Until(ctx, func() (bool, error) {
		if v, err = p.getVolume(ctx, id); err != nil || v.bytes() >= bytes {
			return true, err
		}
		body := &volume{Properties: volumeProperties{DiskSizeGB: size}}
		if err = p.change(ctx, http.MethodPatch, id, body); busy(err) {
			err = nil
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	return p.disk(v), nil
}
