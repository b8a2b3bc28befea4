// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
)

// making is a volume to be made, of at least bytes and, unless that is 0, at most limit.
type making struct {
	volume       volume
	bytes, limit int64
	// plan sets where, and for a copy the VM to clone and the disk on it.
	site      *site
	datastore types.ManagedObjectReference
	source    *hardware
	disk      *types.VirtualDisk
}

// findOrMakeVolume returns the volume of a key, and its id, when it can be used.
func (p *Provider) findOrMakeVolume(ctx context.Context, kind string, m *making) (id string, v *volume, err error) {
	id = volumeID(kind, m.volume.Tags[provider.TagCluster], m.volume.Key)
	err = p.whileVolumeLocked(ctx, id, func(w *watcher) (bool, error) {
		k, err := p.ours(ctx, w, kind, id)
		switch {
		case err != nil:
			return false, err
		case k == nil:
			if ready, err := p.plan(ctx, w, m); err != nil || !ready {
				return false, err
			}
			return false, p.makeCarrier(ctx, w, carrierName(kind, id), m)
		case k.volume.Deleting:
			return false, p.removeStep(ctx, w, k)
		case k.volume.Copied != "":
			return false, p.complete(ctx, w, k)
		}
		v = k.volume
		return true, nil
	})
	return id, v, err
}

// source returns kind and id of what a volume is a copy of; the id is empty if of nothing.
func (v *volume) source() (kind, id string) {
	if v.FromSnapshot != "" {
		return kindSnapshot, v.FromSnapshot
	}
	return kindDisk, v.FromDisk
}

// plan completes m, and reports whether the source is where it can be copied.
func (p *Provider) plan(ctx context.Context, w *watcher, m *making) (ready bool, err error) {
	if m.site, err = p.site(ctx, w.client); err != nil {
		return false, err
	}
	v, least := &m.volume, m.bytes
	v.Created = time.Now().UTC().Truncate(time.Second)
	if kind, id := v.source(); id != "" {
		k, err := p.mustOurs(ctx, w, kind, id)
		switch {
		case err != nil:
			return false, err
		case least != 0 && least < k.volume.Bytes:
			return false, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, least, id, k.volume.Bytes)
		}
		least, v.Copied, v.Type = max(least, k.volume.Bytes), k.version, cmp.Or(v.Type, k.volume.Type)
		if m.source, m.disk, err = p.holder(ctx, w, k); m.source == nil || err != nil {
			return false, err
		}
	}
	if v.Bytes, err = sizeOf(least, m.limit); err != nil {
		return false, err
	}
	return true, p.findDatastore(ctx, w, m)
}

// findDatastore looks up the one that the type names: by default that of VMs.
func (p *Provider) findDatastore(ctx context.Context, w *watcher, m *making) error {
	v := &m.volume
	v.Type = cmp.Or(v.Type, p.cfg.Datastore)
	if disks := m.site.template.devices.SelectByType((*types.VirtualDisk)(nil)); v.Type == "" && len(disks) > 0 {
		var file object.DatastorePath
		file.FromString(fileOf(disks[0]))
		v.Type = file.Datastore
	}
	finder, err := p.finder(ctx, w.client)
	if err != nil {
		return err
	}
	store, err := found[*object.Datastore](ctx, finder, datastoreFolder, v.Type, finder.Datastore)
	if err = classify(err); err == nil {
		m.datastore = store.Reference()
	} else if provider.Class(err) == provider.ErrNotFound {
		err = fmt.Errorf("%w: type %q is not a datastore: %v", provider.ErrInvalidArgument, v.Type, err)
	}
	return err
}

// makeCarrier makes the VM. If there is one of the name already, the caller looks again.
func (p *Provider) makeCarrier(ctx context.Context, w *watcher, name string, m *making) error {
	record, err := m.volume.option()
	if err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{
		Name: name, ExtraConfig: []types.BaseOptionValue{record},
		Annotation: fmt.Sprintf("Carrier of a disk of Outrigger (%s); never to be started. %.200s", m.volume.Key, m.volume.Name),
	}
	if m.source == nil {
		err = w.run(ctx, func() (*object.Task, error) { return m.create(ctx, w, spec) })
	} else {
		err = m.source.unlessOvertaken(w.run(ctx, func() (*object.Task, error) { return m.clone(ctx, w, spec) }))
	}
	if is[*types.DuplicateName](err) {
		return nil
	}
	if err != nil {
		p.forget(m.site) // it may not be there any more
	}
	return err
}

// create makes a VM with an empty disk, in one task.
func (m *making) create(ctx context.Context, w *watcher, spec types.VirtualMachineConfigSpec) (*object.Task, error) {
	disk := newDisk("")
	disk.CapacityInKB, disk.CapacityInBytes = m.volume.Bytes>>10, m.volume.Bytes
	disk.Key, disk.ControllerKey, disk.UnitNumber = -2, -1, new(int32)
	controller := &types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
		SharedBus: types.VirtualSCSISharingNoSharing, VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: -1}},
	}}
	spec.GuestId, spec.NumCPUs, spec.MemoryMB = string(types.VirtualMachineGuestOsIdentifierOtherGuest64), 1, memoryStep
	spec.Files = &types.VirtualMachineFileInfo{VmPathName: "[" + path.Base(m.volume.Type) + "]"}
	spec.DeviceChange = []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: controller},
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, FileOperation: types.VirtualDeviceConfigSpecFileOperationCreate, Device: disk},
	}
	var host *object.HostSystem
	if m.site.host != nil {
		host = object.NewHostSystem(w.client, *m.site.host)
	}
	return object.NewFolder(w.client, m.site.folder).CreateVM(ctx, spec, object.NewResourcePool(w.client, m.site.pools[0].ref), host)
}

// clone makes a copy of the VM that has the disk, a carrier or an instance that may run, without its other disks and without
// what its guest is told.
func (m *making) clone(ctx context.Context, w *watcher, spec types.VirtualMachineConfigSpec) (*object.Task, error) {
	for _, key := range instanceKeys {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: ""})
	}
	for _, disk := range m.source.disks() {
		if disk.Key != m.disk.Key {
			spec.DeviceChange = append(spec.DeviceChange, deviceChange(types.VirtualDeviceConfigSpecOperationRemove, disk))
		}
	}
	return object.NewVirtualMachine(w.client, m.source.ref).Clone(ctx, object.NewFolder(w.client, m.site.folder), spec.Name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &m.site.pools[0].ref, Datastore: &m.datastore, Host: m.site.host}, Config: &spec,
	})
}

// complete makes a finished copy a volume, unless the source has moved meanwhile: then it may be of something else, or of nothing.
// Until the copy is finished, its VM is busy.
func (p *Provider) complete(ctx context.Context, w *watcher, k *carrier) error {
	v := *k.volume
	kind, id := v.source()
	source, err := p.carrier(ctx, w.client, kind, id)
	if err != nil {
		return err
	}
	disk, err := k.own()
	if err != nil || source == nil || source.version != v.Copied {
		if err := k.destroy(ctx, w); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s %s was moved while it was copied, or vCenter has copied other disks with it", provider.ErrUnavailable, kind, id)
	}
	v.Copied = ""
	if had := disk.CapacityInKB << 10; had >= v.Bytes {
		v.Bytes = had
		return k.save(ctx, w, v)
	}
	return k.save(ctx, w, v, resized(disk, v.Bytes))
}
