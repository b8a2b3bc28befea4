// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// keepForeign detaches the disks that were not made with a VM, whose files Destroy_Task would remove too, and writes down that an
// instance is being deleted.
func (p *Provider) keepForeign(ctx context.Context, w *watcher, ref types.ManagedObjectReference) error {
	var v mo.VirtualMachine
	paths := []string{"name", "snapshot", "config.changeVersion", "config.files.vmPathName", "config.hardware.device"}
	if err := property.DefaultCollector(w.client).RetrieveOne(ctx, ref, paths, &v); err != nil {
		return fmt.Errorf("look for disks of others: %w", err)
	}
	if v.Name == "" || v.Config == nil || v.Config.Files.VmPathName == "" {
		return fmt.Errorf("%w: vCenter does not tell which disks the VM has, and those of others would be deleted with it: is its datastore connected?", provider.ErrUnavailable)
	}
	if err := foreignInSnapshots(ctx, w, &v); err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{ChangeVersion: v.Config.ChangeVersion}
	if id, ours := strings.CutPrefix(v.Name, vmName("")); ours && names.IsUUID(id) {
		// What AttachDisk read before is outdated, and it adds no disk now; the value differs, or nothing would change.
		spec.ExtraConfig = []types.BaseOptionValue{&types.OptionValue{Key: deletingKey, Value: time.Now().Format(time.RFC3339Nano)}}
	}
	for _, disk := range foreignDisks(&v, v.Config.Hardware.Device) {
		logger().Info("a disk that was not made with the VM is detached, and not deleted", "vm", v.Name, "disk", fileOf(disk))
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk})
	}
	if len(spec.DeviceChange)+len(spec.ExtraConfig) == 0 {
		return nil
	}
	vm := object.NewVirtualMachine(w.client, ref)
	if err := w.run(ctx, func() (*object.Task, error) { return vm.Reconfigure(ctx, spec) }); err != nil {
		return fmt.Errorf("detach disks of others: %w", err)
	}
	return nil
}

// foreignInSnapshots refuses a VM of which a snapshot has a disk of others: it would go with the snapshot.
func foreignInSnapshots(ctx context.Context, w *watcher, v *mo.VirtualMachine) error {
	var refs []types.ManagedObjectReference
	for _, tree := range allSnapshots(v.Snapshot) {
		refs = append(refs, tree.Snapshot)
	}
	if len(refs) == 0 {
		return nil
	}
	var snapshots []mo.VirtualMachineSnapshot
	if err := property.DefaultCollector(w.client).Retrieve(ctx, refs, []string{"config.hardware.device"}, &snapshots); err != nil {
		return fmt.Errorf("look for disks of others in snapshots: %w", err)
	}
	for _, s := range snapshots {
		if disks := foreignDisks(v, s.Config.Hardware.Device); len(disks) > 0 {
			return fmt.Errorf("%w: a snapshot of VM %s has disk %s, which was not made with the VM and would be deleted with it: delete the VM's snapshots",
				provider.ErrUnavailable, v.Name, fileOf(disks[0]))
		}
	}
	return nil
}

// foreignDisks returns those of a VM's disks that did not come with its clone: first class disks, and all whose file is not in
// the VM's folder and not named after the VM, as its own are on whatever datastore.
func foreignDisks(v *mo.VirtualMachine, devices object.VirtualDeviceList) (foreign object.VirtualDeviceList) {
	home := path.Dir(v.Config.Files.VmPathName)
	for _, device := range devices.SelectByType((*types.VirtualDisk)(nil)) {
		file := fileOf(device)
		own := file != "" && (path.Dir(file) == home && home != "." || strings.HasPrefix(path.Base(file), v.Name))
		if !own || device.(*types.VirtualDisk).VDiskId != nil {
			foreign = append(foreign, device)
		}
	}
	return foreign
}

// fileOf returns a disk's file, and "" for a disk that has none.
func fileOf(disk types.BaseVirtualDevice) string {
	backing, ok := disk.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !ok {
		return ""
	}
	return backing.GetVirtualDeviceFileBackingInfo().FileName
}
