// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// A disk moves in three steps: its carrier says to whom and lets go of it, and the instance gets it. On the way back the carrier
// says that it comes, the instance lets go of it, and the carrier gets it. Whoever repeats a call goes on from where the last one was.

// AttachDisk implements provider.DiskController.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	if !names.IsUUID(instanceID) {
		return nil, fmt.Errorf("%w: no instance %.100q", provider.ErrNotFound, instanceID)
	}
	err = p.whileVolumeLocked(ctx, diskID, func(w *watcher) (bool, error) {
		made, err = p.attachStep(ctx, w, diskID, instanceID)
		return made != nil, err
	})
	return made, err
}

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer. It reads the instance
// first: if the disk is seen not to leave it later, then leave will change the instance later still, and what is added here
// to the instance as it was read fails.
func (p *Provider) attachStep(ctx context.Context, w *watcher, diskID, instanceID string) (*provider.Attachment, error) {
	instance, err := p.hardware(ctx, w.client, vmName(instanceID))
	if err != nil {
		return nil, err
	}
	k, err := p.mustOurs(ctx, w, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	if instance == nil {
		return nil, fmt.Errorf("%w: no instance %s in the folder of pod VMs", provider.ErrNotFound, instanceID)
	}
	v := *k.volume
	if v.Instance != "" && v.Instance != instanceID {
		_, err := p.atHome(ctx, w, k)
		return nil, err
	}
	switch {
	case v.Leaving:
		return nil, p.leave(ctx, w, k)
	case v.Instance != "" && instance.disk(v.UUID) != nil:
		return &provider.Attachment{Serial: provider.SerialOfWWN(strings.ToLower(strings.ReplaceAll(v.UUID, "-", "")))}, nil
	case v.Deleting || v.Copied != "":
		return nil, beingMade(k.name)
	}
	disk := newDisk(v.File)
	if err := instance.takes(disk); err != nil {
		return nil, err
	}
	if v.Instance == "" {
		return nil, k.give(ctx, w, instanceID)
	}
	return nil, instance.change(ctx, w, nil, deviceChange(types.VirtualDeviceConfigSpecOperationAdd, disk))
}

// takes places a disk in an instance, or says why that cannot have it.
func (h *hardware) takes(disk *types.VirtualDisk) error {
	_, made := h.known.option(recordPath)
	_, deleting := h.known.option(entryPath(deletingKey))
	enabled, _ := h.known.option(entryPath(enableUUIDKey))
	switch {
	case !made || deleting && h.known["runtime.powerState"] != types.VirtualMachinePowerStatePoweredOn:
		return beingMade(h.name)
	case !strings.EqualFold(enabled, "TRUE"):
		return fmt.Errorf("%w: the guest of VM %s cannot tell its disks apart: it was made without %s; make it again", provider.ErrInvalidArgument, h.name, enableUUIDKey)
	}
	return h.place(disk)
}

func beingMade(name string) error {
	return fmt.Errorf("%w: %s is being made or deleted", provider.ErrUnavailable, name)
}

// give writes down that an instance is to have the carrier's disk, and takes it from the carrier.
func (k *carrier) give(ctx context.Context, w *watcher, instanceID string) error {
	disk, err := k.own()
	if err != nil {
		return err
	}
	v := *k.volume
	v.Instance, v.File, v.UUID = instanceID, fileOf(disk), uuidOf(disk)
	if v.UUID == "" || v.File == "" {
		return fmt.Errorf("%w: vCenter tells neither file nor UUID of the disk of VM %s", provider.ErrUnavailable, k.name)
	}
	return k.save(ctx, w, v, deviceChange(types.VirtualDeviceConfigSpecOperationRemove, disk))
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	return p.whileVolumeLocked(ctx, diskID, func(w *watcher) (bool, error) {
		k, err := p.ours(ctx, w, kindDisk, diskID)
		if err != nil || k == nil || instanceID == "" || k.volume.Instance != instanceID {
			return true, err
		}
		return false, p.leave(ctx, w, k)
	})
}

// leave brings the disk one step nearer to its carrier.
func (p *Provider) leave(ctx context.Context, w *watcher, k *carrier) error {
	v := *k.volume
	if !v.Leaving {
		v.Leaving = true
		return k.save(ctx, w, v)
	}
	instance, err := p.hardware(ctx, w.client, vmName(v.Instance))
	if err != nil {
		return err
	}
	if instance != nil {
		// The instance is changed in any case, so that nobody adds the disk who has read it before.
		left, _ := instance.known.option(entryPath(leftKey))
		var removal []types.BaseVirtualDeviceConfigSpec
		if disk := instance.disk(v.UUID); disk != nil {
			if err := whole(instance, disk); err != nil {
				return err
			}
			removal = append(removal, deviceChange(types.VirtualDeviceConfigSpecOperationRemove, disk))
		}
		if mark := k.name + "/" + k.version; len(removal) > 0 || left != mark {
			return instance.change(ctx, w, &types.OptionValue{Key: leftKey, Value: mark}, removal...)
		}
	}
	disk := newDisk(v.File)
	if err := k.place(disk); err != nil {
		return err
	}
	v.Instance, v.File, v.UUID, v.Leaving = "", "", "", false
	return k.save(ctx, w, v, deviceChange(types.VirtualDeviceConfigSpecOperationAdd, disk))
}

// whole refuses to move or resize a disk of which a snapshot of the VM has a part: what was written since is in another file.
func whole(vm *hardware, disk *types.VirtualDisk) error {
	if backing, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && backing.Parent == nil {
		return nil
	}
	return fmt.Errorf("%w: VM %s has a snapshot, and vSphere neither detaches nor resizes its disks: delete the VM's snapshots", provider.ErrUnavailable, vm.name)
}

// atHome reports whether the carrier has the disk. While an instance has it the error is ErrInUse; if that
// is gone, the disk is brought one step nearer.
func (p *Provider) atHome(ctx context.Context, w *watcher, k *carrier) (bool, error) {
	if k.volume.Instance == "" {
		return true, nil
	}
	instance, err := p.child(ctx, w.client, vmName(k.volume.Instance))
	if err != nil {
		return false, err
	}
	if instance != nil {
		return false, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, k.volume.Instance)
	}
	return false, p.leave(ctx, w, k)
}

// holder returns the VM that has the disk, and the disk; nil after the disk was brought nearer to its carrier.
func (p *Provider) holder(ctx context.Context, w *watcher, k *carrier) (*hardware, *types.VirtualDisk, error) {
	v := k.volume
	switch {
	case v.Deleting || v.Copied != "":
		return nil, nil, beingMade(k.name)
	case v.Instance == "":
		disk, err := k.own()
		return k.hardware, disk, err
	}
	instance, err := p.hardware(ctx, w.client, vmName(v.Instance))
	if err != nil {
		return nil, nil, err
	}
	if instance == nil {
		return nil, nil, p.leave(ctx, w, k)
	}
	disk := instance.disk(v.UUID)
	if disk == nil || v.Leaving {
		return nil, nil, fmt.Errorf("%w: the disk is being attached to instance %s, or detached", provider.ErrUnavailable, v.Instance)
	}
	return instance, disk, nil
}
