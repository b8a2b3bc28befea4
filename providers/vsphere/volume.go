// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// A disk or a snapshot is a VM that is never started, its carrier: names are unique in a folder, so that a key has one, and
// its extraConfig says whose it is. The carrier has the virtual disk while no instance has it. Each change names the version of
// the configuration that it is made from (changeVersion), and is refused if there was another: so no two processes move a disk.

// Kinds of volumes.
const (
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
)

// Entries in extraConfig: that of a carrier, and those of an instance.
const (
	volumeKey     = "outrigger.volume"
	deletingKey   = "outrigger.deleting" // see keepForeign
	leftKey       = "outrigger.left"     // see leave
	enableUUIDKey = "disk.EnableUUID"    // the guest sees the UUIDs of disks
)

func entryPath(key string) string { return `config.extraConfig["` + key + `"]` }

// volume is what a carrier remembers.
type volume struct {
	Key          string            `json:"key"`
	Name         string            `json:"name,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	Created      time.Time         `json:"created"`
	Bytes        int64             `json:"bytes"`
	Type         string            `json:"type"` // the datastore
	FromDisk     string            `json:"fromDisk,omitempty"`
	FromSnapshot string            `json:"fromSnapshot,omitempty"`
	// Copied is the version of the source's carrier from which it is being copied; empty when that is done.
	Copied string `json:"copied,omitempty"`
	// Deleting is set before the carrier is destroyed.
	Deleting bool `json:"deleting,omitempty"`
	// Instance is the one that has the disk, or is about to; File and UUID are then those of the disk, which the carrier
	// does not have. Leaving is set while it comes back.
	Instance string `json:"instance,omitempty"`
	File     string `json:"file,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Leaving  bool   `json:"leaving,omitempty"`
}

func (v volume) option() (types.BaseOptionValue, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the volume's record: %w", err)
	}
	return &types.OptionValue{Key: volumeKey, Value: string(text)}, nil
}

// volumeOf returns nil for a VM without a volume's record.
func volumeOf(known properties) (*volume, error) {
	text, there := known.option(entryPath(volumeKey))
	if !there {
		return nil, nil
	}
	v := &volume{}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return nil, fmt.Errorf("extraConfig %s of VM %v: %w", volumeKey, known["name"], err)
	}
	return v, nil
}

// volumeID returns the UUID of a key's disk or snapshot.
func volumeID(kind, cluster, key string) string {
	return uuid.NewSHA1(namespace, []byte(kind+"/"+cluster+"/"+key)).String()
}

// carrierName returns the name of a carrier in the folder.
func carrierName(kind, id string) string { return "outrigger-" + kind + "-" + id }

// hardware is what matters of a VM that can have disks.
type hardware struct {
	ref           types.ManagedObjectReference
	name, version string
	devices       object.VirtualDeviceList
	known         properties
}

var hardwarePaths = []string{
	recordPath, entryPath(volumeKey), entryPath(deletingKey), entryPath(leftKey), entryPath(enableUUIDKey),
	"runtime.powerState", "config.changeVersion", "config.hardware.device",
}

// hardware returns the VM of that name in the folder, or nil.
func (p *Provider) hardware(ctx context.Context, c *vim25.Client, name string) (*hardware, error) {
	ref, err := p.child(ctx, c, name)
	if ref == nil || err != nil {
		return nil, err
	}
	contents, err := retrieve(ctx, c, types.ObjectSpec{Obj: *ref}, hardwarePaths)
	if isGone(err, *ref) || err == nil && len(contents) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := &hardware{ref: *ref, name: name, known: contents[0].properties()}
	h.version, _ = h.known["config.changeVersion"].(string)
	devices, _ := h.known["config.hardware.device"].(types.ArrayOfVirtualDevice)
	h.devices = devices.VirtualDevice
	return h, nil
}

func (h *hardware) disks() (disks []*types.VirtualDisk) {
	for _, device := range h.devices {
		if disk, ok := device.(*types.VirtualDisk); ok {
			disks = append(disks, disk)
		}
	}
	return disks
}

// disk returns the one with a UUID, or nil.
func (h *hardware) disk(uuid string) *types.VirtualDisk {
	for _, disk := range h.disks() {
		if uuid != "" && strings.EqualFold(uuidOf(disk), uuid) {
			return disk
		}
	}
	return nil
}

func uuidOf(disk *types.VirtualDisk) string {
	switch b := disk.Backing.(type) {
	case *types.VirtualDiskFlatVer2BackingInfo:
		return b.Uuid
	case *types.VirtualDiskSeSparseBackingInfo: // while there is a snapshot
		return b.Uuid
	}
	return ""
}

// units are those of a SCSI controller, one of which is its own.
const units = 16

// place puts a disk at the first free unit of the VM's SCSI controllers.
func (h *hardware) place(disk *types.VirtualDisk) error {
	for _, device := range h.devices {
		controller, ok := device.(types.BaseVirtualSCSIController)
		if !ok {
			continue
		}
		scsi := controller.GetVirtualSCSIController()
		used := [units]bool{}
		used[scsi.ScsiCtlrUnitNumber%units] = true
		for _, other := range h.devices {
			if d := other.GetVirtualDevice(); d.ControllerKey == scsi.Key && d.UnitNumber != nil {
				used[*d.UnitNumber%units] = true
			}
		}
		for unit := range int32(units) {
			if !used[unit] {
				disk.ControllerKey, disk.UnitNumber = scsi.Key, &unit
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no unit of a SCSI controller of VM %s is free", provider.ErrCapacity, h.name)
}

// errOvertaken says that somebody works on a VM or has changed it since it was read; whileVolumeLocked looks again.
var errOvertaken = errors.New("the VM has changed or is busy")

// change reconfigures the VM, unless somebody has since h was read: then, or if the VM is gone or busy, it returns errOvertaken.
func (h *hardware) change(ctx context.Context, w *watcher, option types.BaseOptionValue, devices ...types.BaseVirtualDeviceConfigSpec) error {
	spec := types.VirtualMachineConfigSpec{ChangeVersion: h.version, DeviceChange: devices}
	if option != nil {
		spec.ExtraConfig = []types.BaseOptionValue{option}
	}
	return h.unlessOvertaken(w.run(ctx, func() (*object.Task, error) { return object.NewVirtualMachine(w.client, h.ref).Reconfigure(ctx, spec) }))
}

// destroy removes the VM and its disks, or returns errOvertaken as change does.
func (h *hardware) destroy(ctx context.Context, w *watcher) error {
	return h.unlessOvertaken(w.run(ctx, func() (*object.Task, error) { return object.NewVirtualMachine(w.client, h.ref).Destroy(ctx) }))
}

func (h *hardware) unlessOvertaken(err error) error {
	if busy(err) && !is[*types.FileLocked](err) || isGone(err, h.ref) {
		return errOvertaken
	}
	return err
}

func deviceChange(operation types.VirtualDeviceConfigSpecOperation, disk *types.VirtualDisk) types.BaseVirtualDeviceConfigSpec {
	return &types.VirtualDeviceConfigSpec{Operation: operation, Device: disk}
}

// newDisk returns a device for a file; for "" one whose file is to be made.
func newDisk(file string) *types.VirtualDisk {
	return &types.VirtualDisk{VirtualDevice: types.VirtualDevice{Key: -1, Backing: &types.VirtualDiskFlatVer2BackingInfo{
		VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: file},
		DiskMode:                     string(types.VirtualDiskModePersistent), ThinProvisioned: new(true),
	}}}
}

// resized returns the change of a disk's size.
func resized(disk *types.VirtualDisk, bytes int64) types.BaseVirtualDeviceConfigSpec {
	larger := *disk
	larger.CapacityInBytes, larger.CapacityInKB = bytes, bytes>>10
	return deviceChange(types.VirtualDeviceConfigSpecOperationEdit, &larger)
}

// carrier is the VM of a volume, which is nil on a VM of others, and on one that is just being made.
type carrier struct {
	*hardware
	volume *volume
}

// carrier returns the one of a disk or snapshot, or nil.
func (p *Provider) carrier(ctx context.Context, c *vim25.Client, kind, id string) (*carrier, error) {
	if !names.IsUUID(id) {
		return nil, nil
	}
	h, err := p.hardware(ctx, c, carrierName(kind, id))
	if h == nil || err != nil {
		return nil, err
	}
	v, err := volumeOf(h.known)
	return &carrier{h, v}, err
}

// ours returns a carrier with a volume, or nil, once it is known that it is not just being made.
func (p *Provider) ours(ctx context.Context, w *watcher, kind, id string) (k *carrier, err error) {
	err = p.untilRecorded(ctx, carrierName(kind, id), volumeKey, func(ctx context.Context) (bool, error) {
		k, err = p.carrier(ctx, w.client, kind, id)
		return k == nil || k.volume != nil, err
	})
	return k, err
}

// mustOurs is ours for a volume that there must be.
func (p *Provider) mustOurs(ctx context.Context, w *watcher, kind, id string) (*carrier, error) {
	k, err := p.ours(ctx, w, kind, id)
	if err == nil && k == nil {
		err = noSuch(kind, id)
	}
	return k, err
}

func noSuch(kind, id string) error {
	return fmt.Errorf("%w: no %s %.100q in the folder of pod VMs", provider.ErrNotFound, kind, id)
}

// save is change with another record.
func (k *carrier) save(ctx context.Context, w *watcher, v volume, devices ...types.BaseVirtualDeviceConfigSpec) error {
	option, err := v.option()
	if err != nil {
		return err
	}
	return k.change(ctx, w, option, devices...)
}

// own returns the carrier's only disk.
func (k *carrier) own() (*types.VirtualDisk, error) {
	if disks := k.disks(); len(disks) == 1 {
		return disks[0], nil
	}
	return nil, fmt.Errorf("%w: VM %s has %d disks, want its own alone: somebody has changed it", provider.ErrUnavailable, k.name, len(k.disks()))
}

// stepsAtOnce are taken without a pause; no call needs more.
const stepsAtOnce = 10

// whileVolumeLocked calls do until it is done, while nobody else in this process works on the volume.
func (p *Provider) whileVolumeLocked(ctx context.Context, id string, do func(*watcher) (done bool, err error)) error {
	return p.locked(ctx, id, func(w *watcher) error {
		return p.pace.Until(ctx, func() (done bool, err error) {
			for range stepsAtOnce {
				if done, err = do(w); done || err != nil {
					break
				}
			}
			if errors.Is(err, errOvertaken) {
				return false, nil
			}
			return done, err
		})
	})
}
