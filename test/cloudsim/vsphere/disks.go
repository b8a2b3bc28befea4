// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

var files atomic.Int64

// AddDisk makes a disk in a folder of the datastore that is of no VM, attaches it to the test's VM of that name, as one does by
// hand, and returns its file.
func (s *Site) AddDisk(t testing.TB, name string) string {
	t.Helper()
	file := fmt.Sprintf("[%s] databases-%d/data.vmdk", Datastore, files.Add(1))
	if err := s.addDisk(t.Context(), name, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *Site) addDisk(ctx context.Context, name, file string) error {
	c, dc := s.center.client, s.datacenter()
	if err := object.NewFileManager(c).MakeDirectory(ctx, path.Dir(file), dc, true); err != nil {
		return err
	}
	task, err := object.NewVirtualDiskManager(c).CreateVirtualDisk(ctx, file, dc, &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{DiskType: string(types.VirtualDiskTypeThin), AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic)}, CapacityKb: 1 << 20,
	})
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil {
		return err
	}
	vm := object.NewVirtualMachine(c, s.vm(name).Self)
	devices, err := vm.Device(ctx)
	if err != nil {
		return err
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		return err
	}
	disk := devices.CreateDisk(controller, types.ManagedObjectReference{}, file)
	disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo).Datastore = nil
	task, err = vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{DeviceChange: []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk},
	}})
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}

func (s *Site) datacenter() *object.Datacenter {
	ref, err := object.NewSearchIndex(s.center.client).FindByInventoryPath(context.Background(), "/"+Datacenter)
	if err != nil {
		panic(err)
	}
	return object.NewDatacenter(s.center.client, ref.Reference())
}

// DiskExists reports whether the datastore has the file of a disk.
func (s *Site) DiskExists(t testing.TB, file string) bool {
	t.Helper()
	_, err := object.NewVirtualDiskManager(s.center.client).QueryVirtualDiskUuid(t.Context(), file, s.datacenter())
	return err == nil
}

// Snapshot takes one of the test's VM of that name, as backups do, and returns what removes it.
func (s *Site) Snapshot(t testing.TB, name string) (remove func()) {
	t.Helper()
	vm := object.NewVirtualMachine(s.center.client, s.vm(name).Self)
	wait := func(task *object.Task, err error) {
		if err == nil {
			err = task.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	wait(vm.CreateSnapshot(t.Context(), "backup", "", false, false))
	return func() { wait(vm.RemoveAllSnapshot(t.Context(), nil)) }
}
