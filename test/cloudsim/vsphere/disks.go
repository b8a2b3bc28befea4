// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
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

// Snapshot takes one of the test's VM of that name, as backups do, and returns what removes it. Meanwhile the VM writes to other files, whose
// parents are those of before (VirtualDiskFlatVer2BackingInfo), which vcsim does not do.
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
	eachBacking := func(do func(*types.VirtualDiskFlatVer2BackingInfo)) {
		s.eachDisk(func(vm *simulator.VirtualMachine, disk *types.VirtualDisk, _ string) {
			if vm.Name == name {
				do(disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo))
			}
		})
	}
	eachBacking(func(b *types.VirtualDiskFlatVer2BackingInfo) {
		parent := *b
		b.Parent, b.FileName = &parent, strings.Replace(b.FileName, ".vmdk", "-000001.vmdk", 1)
	})
	return func() {
		wait(vm.RemoveAllSnapshot(t.Context(), nil))
		eachBacking(func(b *types.VirtualDiskFlatVer2BackingInfo) { *b = *b.Parent })
	}
}

// Holders returns which of the test's VMs have each file of a disk.
func (s *Site) Holders() map[string][]string {
	holders := map[string][]string{}
	s.eachDisk(func(vm *simulator.VirtualMachine, disk *types.VirtualDisk, file string) {
		holders[file] = append(holders[file], vm.Name)
	})
	return holders
}

func (s *Site) eachDisk(do func(vm *simulator.VirtualMachine, disk *types.VirtualDisk, file string)) {
	ctx := simulator.Context{Context: context.Background(), Map: s.center.model.Map()}
	for _, entity := range ctx.Map.All("VirtualMachine") {
		vm, ok := entity.(*simulator.VirtualMachine)
		if !ok {
			continue
		}
		ctx.Map.WithLock(&ctx, vm, func() {
			for _, device := range vm.Config.Hardware.Device {
				if disk, ok := device.(*types.VirtualDisk); ok && vm.Parent != nil && *vm.Parent == s.folder.Reference() {
					do(vm, disk, disk.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName)
				}
			}
		})
	}
}

// settleContents gives the disks of clones that have ended what is on them. The caller holds disks.
func (s *Site) settleContents() {
	s.eachDisk(func(vm *simulator.VirtualMachine, disk *types.VirtualDisk, file string) {
		if data, ok := s.copies[vm.Name][disk.Key]; ok {
			s.contents[file] = data
			delete(s.copies[vm.Name], disk.Key)
		}
	})
}

// cloned finds source and name in a request.
var cloned = regexp.MustCompile(`(?s)<CloneVM_Task[^>]*>.*?<_this[^>]*>([^<]+)<.*?<name>([^<]+)<`)

// copyContents remembers what is on the disks of a VM that is cloned.
func (s *Site) copyContents(r *http.Request) {
	found := cloned.FindSubmatch(peek(r))
	if found == nil || s.vm(string(found[2])) != nil {
		return
	}
	s.disks.Lock()
	defer s.disks.Unlock()
	s.settleContents()
	copied := map[int32][]byte{}
	s.eachDisk(func(vm *simulator.VirtualMachine, disk *types.VirtualDisk, file string) {
		if vm.Self.Value == string(found[1]) {
			copied[disk.Key] = s.contents[file]
		}
	})
	s.copies[string(found[2])] = copied
}

// WriteDisk and ReadDisk write and read the first bytes of the only disk of a VM.
func (s *Site) WriteDisk(name string, data []byte) error {
	return s.withContent(name, func(file string) { s.contents[file] = slices.Clone(data) })
}

func (s *Site) ReadDisk(name string, bytes int) (data []byte, err error) {
	err = s.withContent(name, func(file string) { data = append(make([]byte, 0, bytes), s.contents[file]...)[:bytes] })
	return data, err
}

func (s *Site) withContent(name string, do func(file string)) error {
	s.disks.Lock()
	defer s.disks.Unlock()
	s.settleContents()
	var files []string
	s.eachDisk(func(vm *simulator.VirtualMachine, _ *types.VirtualDisk, file string) {
		if vm.Name == name {
			files = append(files, file)
		}
	})
	if len(files) != 1 {
		return fmt.Errorf("VM %s has the disks %v", name, files)
	}
	do(files[0])
	return nil
}

// AddForeignDisk makes a VM of that name with a disk, and returns what removes it.
func (s *Site) AddForeignDisk(ctx context.Context, name string, extra ...types.BaseOptionValue) (remove func() error, err error) {
	ref, err := s.addVM(name, extra)
	if err != nil {
		return nil, err
	}
	vm := object.NewVirtualMachine(s.center.client, ref)
	remove = func() error {
		task, err := vm.Destroy(ctx)
		if err == nil {
			err = task.Wait(ctx)
		}
		return err
	}
	scsi, err := object.SCSIControllerTypes().CreateSCSIController("pvscsi")
	if err == nil {
		err = vm.AddDevice(ctx, scsi)
	}
	if err == nil {
		err = s.addDisk(ctx, name, fmt.Sprintf("[%s] foreign-%d/data.vmdk", Datastore, files.Add(1)))
	}
	return remove, err
}
