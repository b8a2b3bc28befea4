// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// TestDisksOfOthersStay when the VM is deleted that they are attached to, whatever fails meanwhile; its own do not.
func TestDisksOfOthersStay(t *testing.T) {
	for name, fault := range map[string]*cloudsim.Fault{
		"nothing fails":    nil,
		"lost detachment":  new(cloudsim.LostReply("ReconfigVM_Task")),
		"no detachment":    new(cloudsim.Refused("ReconfigVM_Task", 500, "NoPermission")),
		"detachment fails": new(cloudsim.Refused("ReconfigVM_Task", 500, "task:SystemError")),
		"changed":          new(cloudsim.Refused("ReconfigVM_Task", 500, "task:ConcurrentAccess")),
		"no look":          new(cloudsim.Unreachable("RetrievePropertiesEx")),
		"lost deletion":    new(cloudsim.LostReply("Destroy_Task")),
		"busy":             new(cloudsim.Refused("Destroy_Task", 500, "task:ResourceInUse")),
	} {
		t.Run(name, func(t *testing.T) {
			s := sim.Start(t)
			p := mustOpen(t, simConfig(s))
			i, err := create(t.Context(), p, "key")
			if err != nil {
				t.Fatal(err)
			}
			own := fileOf(disksOf(s, i.ID)[0])
			foreign := []string{s.AddDisk(t, vmName(i.ID)), s.AddDisk(t, vmName(i.ID))}
			if fault != nil {
				s.World.Script(*fault)
			}
			for range 3 {
				if err = p.DeleteInstance(t.Context(), i.ID); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if !s.DiskExists(t, foreign[0]) || !s.DiskExists(t, foreign[1]) || s.DiskExists(t, own) {
				t.Errorf("others' disks are there: %v, %v; the VM's own: %v", s.DiskExists(t, foreign[0]), s.DiskExists(t, foreign[1]), s.DiskExists(t, own))
			}
			if left, _ := s.Leaks(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func disksOf(s *sim.Site, id string) object.VirtualDeviceList {
	return object.VirtualDeviceList(s.VM(vmName(id)).Hardware.Device).SelectByType((*types.VirtualDisk)(nil))
}

// TestDisksOfOthersInSnapshots would go with them: the VM stays until somebody has deleted those.
func TestDisksOfOthersInSnapshots(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	file := s.AddDisk(t, vmName(i.ID))
	remove := s.Snapshot(t, vmName(i.ID))
	if err := p.DeleteInstance(t.Context(), i.ID); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "delete the VM's snapshots") {
		t.Fatal(err)
	}
	if got := len(disksOf(s, i.ID)); got != 2 {
		t.Errorf("the VM has %d disks", got)
	}
	remove()
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil || !s.DiskExists(t, file) {
		t.Errorf("%v; the disk exists: %v", err, s.DiskExists(t, file))
	}
}

// TestOwnDisks are told by their files.
func TestOwnDisks(t *testing.T) {
	v := &mo.VirtualMachine{Config: &types.VirtualMachineConfigInfo{Files: types.VirtualMachineFileInfo{VmPathName: "[a] podvm-1/podvm-1.vmx"}}}
	v.Name = "podvm-1"
	for file, own := range map[string]bool{
		"[a] podvm-1/podvm-1.vmdk": true, "[a] podvm-1/podvm-1_1-000002.vmdk": true, "[a] podvm-1/root.vmdk": true, "[b] podvm-1_2/podvm-1.vmdk": true,
		"[vsan] 5f3c/podvm-1.vmdk": true, "[a] podvm-10/root.vmdk": false, "[a] data.vmdk": false, "[b] podvm-1/root.vmdk": false, "[a] fcd/5f3c.vmdk": false, "": false,
	} {
		backing := &types.VirtualDiskFlatVer2BackingInfo{VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: file}}
		disk := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Backing: backing}}
		if foreign := foreignDisks(v, object.VirtualDeviceList{disk}); (len(foreign) == 0) != own {
			t.Errorf("%s: own %v, want %v", file, len(foreign) == 0, own)
		}
		disk.VDiskId = &types.ID{Id: "5f3c"}
		if len(foreignDisks(v, object.VirtualDeviceList{disk})) == 0 {
			t.Errorf("%s is a first class disk, and taken for the VM's own", file)
		}
	}
	raw := &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Backing: &types.VirtualDiskRawDiskVer2BackingInfo{}}}
	if len(foreignDisks(v, object.VirtualDeviceList{raw})) == 0 {
		t.Error("a device of the host is taken for the VM's own")
	}
}
