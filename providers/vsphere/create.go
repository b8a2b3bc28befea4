// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/internal/guestinfo"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/tags"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// undoWait is how long the removal of what a failed creation left may take. The
// caller's context may have ended already.
const undoWait = 30 * time.Second

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	defer explain(&err, "create instance %s", instanceID(sandboxID))
	o, err := p.newOrder(podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, err
	}
	err = p.locked(ctx, o.id, func(w *watcher) error {
		made, err = p.findOrMake(ctx, w, o)
		return err
	})
	return made, err
}

// order is everything about an instance that needs no vCenter.
type order struct {
	id       string
	record   record
	userData string // gzip, base64
	cpus     int64
	memory   int64
	image    string
}

func (p *Provider) newOrder(podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*order, error) {
	if err := refuse(spec); err != nil {
		return nil, err
	}
	o := &order{id: instanceID(key), cpus: cmp.Or(spec.VCPUs, p.cfg.CPUs), memory: cmp.Or(spec.Memory, p.cfg.Memory), image: spec.Image}
	if err := o.checkSize(); err != nil {
		return nil, err
	}
	o.record = record{Key: key, Name: provider.InstanceName(podName, key), Tags: tags.Merge(spec.Tags), Created: time.Now().UTC().Truncate(time.Second)}
	var err error
	o.userData, err = encodeUserData(cloudConfig)
	return o, err
}

// refuse names what this provider has not got.
func refuse(spec provider.InstanceTypeSpec) error {
	switch {
	case spec.InstanceType != "":
		return fmt.Errorf("%w: instance type %q: vSphere has no types; ask for CPUs and memory", provider.ErrInvalidArgument, spec.InstanceType)
	case spec.GPUs != 0 || spec.GPU != "":
		return fmt.Errorf("%w: %d GPUs of model %q: this provider has none", provider.ErrInvalidArgument, spec.GPUs, spec.GPU)
	case spec.Arch != "" && spec.Arch != "amd64":
		return fmt.Errorf("%w: architecture %q: vSphere has amd64", provider.ErrInvalidArgument, spec.Arch)
	case spec.MultiNic:
		return fmt.Errorf("%w: a second interface to the outside: this provider gives none", provider.ErrInvalidArgument)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	case len(spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes: this provider has none", provider.ErrInvalidArgument)
	}
	return nil
}

// The largest VM of vSphere 8 (configuration maximums), memory in MiB; and what
// the pod VM's kernel needs.
const (
	maxCPUs   = 768
	maxMemory = 24 << 20
	minMemory = 96
	// memoryStep is what vSphere wants a VM's memory to be a multiple of.
	memoryStep = 4
)

func (o *order) checkSize() error {
	if o.cpus < 1 || o.cpus > maxCPUs {
		return fmt.Errorf("%w: %d CPUs: want 1 to %d", provider.ErrInvalidArgument, o.cpus, maxCPUs)
	}
	if o.memory < minMemory || o.memory > maxMemory {
		return fmt.Errorf("%w: %d MiB of memory: want %d to %d", provider.ErrInvalidArgument, o.memory, minMemory, maxMemory)
	}
	o.memory = (o.memory + memoryStep - 1) / memoryStep * memoryStep
	return nil
}

// maxUserData is the largest value of guestinfo.userdata after encoding: the
// guest gets it in one message of VMware's back door, which has 64 KiB.
const maxUserData = 64<<10 - 512

func encodeUserData(cloudConfig cloudinit.CloudConfigGenerator) (string, error) {
	text, err := userdata.Generate(cloudConfig)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err = z.Write([]byte(text)); err == nil {
		err = z.Close()
	}
	if err != nil {
		return "", fmt.Errorf("compress user-data: %w", err)
	}
	encoded := base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(encoded) > maxUserData {
		return "", fmt.Errorf("%w: user-data of %d bytes is %d compressed and encoded; vSphere takes %d", provider.ErrInvalidArgument, len(text), len(encoded), maxUserData)
	}
	return encoded, nil
}

// findOrMake returns an instance, also beside an error, when the caller may
// have something to delete.
func (p *Provider) findOrMake(ctx context.Context, w *watcher, o *order) (*provider.Instance, error) {
	m, err := p.find(ctx, w.client, o.id)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return p.make(ctx, w, o)
	}
	return p.finish(ctx, w, o, m)
}

// make tries one resource pool after the other.
func (p *Provider) make(ctx context.Context, w *watcher, o *order) (*provider.Instance, error) {
	s, err := p.site(ctx, w.client)
	if err != nil {
		return nil, err
	}
	from := s.template
	if o.image != "" && o.image != p.cfg.Template {
		if from, err = p.image(ctx, w, s, o.image); err != nil {
			return nil, err
		}
	}
	made, err := places.Try(s.pools, places.NoCapacity, func(in pool) (*provider.Instance, error) {
		made, err := p.makeIn(ctx, w, o, s, from, in)
		if err != nil {
			err = fmt.Errorf("resource pool %q: %w", in.name, classify(err))
		}
		return made, err
	})
	if err != nil && (made != nil || !places.NoCapacity(err)) {
		p.forget(s) // it may not be there any more
	}
	return made, err
}

// image looks up the template that a pod asks for. It is the pod's alone.
func (p *Provider) image(ctx context.Context, w *watcher, s *site, name string) (*template, error) {
	finder, err := p.finder(ctx, w.client)
	if err != nil {
		return nil, err
	}
	existing, err := p.findTemplate(ctx, w.client, finder, name)
	if err != nil {
		return nil, classify(fmt.Errorf("image %q: %w", name, err))
	}
	if s.network != nil && existing.card() == nil {
		return nil, fmt.Errorf("%w: image %q has no network card to put on -network (GOVC_NETWORK)", provider.ErrInvalidArgument, name)
	}
	return existing, nil
}

// makeIn clones and starts a VM. What is left of one that could not be started
// for good is removed; after a lost reply the caller gets its id to delete.
func (p *Provider) makeIn(ctx context.Context, w *watcher, o *order, s *site, from *template, in pool) (*provider.Instance, error) {
	ref, err := p.clone(ctx, w, o, s, from, in)
	if is[*types.DuplicateName](err) {
		return p.otherMade(ctx, w, o)
	}
	if err != nil {
		return unsettled(o, err), fmt.Errorf("clone %s: %w", from.name, err)
	}
	addrs, err := p.bringUp(ctx, w, ref)
	if err == nil {
		return p.located((&machine{name: vmName(o.id), power: types.VirtualMachinePowerStatePoweredOn, addrs: addrs, record: &o.record}).instance()), nil
	}
	if made := unsettled(o, err); made != nil {
		return made, err
	}
	return p.undo(ctx, w, o, ref, err)
}

// unsettled returns what the caller can delete when nobody knows how a call has
// ended, or a later attempt may go on with what there is.
func unsettled(o *order, err error) *provider.Instance {
	if class := provider.Class(classify(err)); class == provider.ErrUnavailable || class == provider.ErrUnknown {
		return o.left()
	}
	return nil
}

func (o *order) left() *provider.Instance {
	return &provider.Instance{ID: o.id, Name: o.record.Name, Key: o.record.Key}
}

func (p *Provider) undo(ctx context.Context, w *watcher, o *order, ref types.ManagedObjectReference, cause error) (*provider.Instance, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := p.destroy(ctx, w, ref, true); err != nil {
		return o.left(), errors.Join(classify(cause), fmt.Errorf("remove what was made: %w", err))
	}
	return nil, cause
}

// otherMade handles a name that was taken between look-up and clone.
func (p *Provider) otherMade(ctx context.Context, w *watcher, o *order) (*provider.Instance, error) {
	m, err := p.find(ctx, w.client, o.id)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%w: VM %s was there and is gone; somebody deletes it", provider.ErrUnavailable, vmName(o.id))
	}
	return p.finish(ctx, w, o, m)
}

// finish brings a VM that exists to where a creation ends, unless it is stopped
// on purpose.
func (p *Provider) finish(ctx context.Context, w *watcher, o *order, m *machine) (*provider.Instance, error) {
	m, err := p.settled(ctx, w.client, m)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%w: VM %s went away; somebody deletes it", provider.ErrUnavailable, vmName(o.id))
	}
	if m.record.Key != o.record.Key {
		return nil, fmt.Errorf("%w: VM %s is of another sandbox", provider.ErrAlreadyExists, m.name)
	}
	if m.on() && len(m.addrs) > 0 || !m.on() && len(m.record.Addrs) > 0 {
		return p.located(m.instance()), nil
	}
	addrs, err := p.bringUp(ctx, w, m.ref)
	if err != nil {
		return m.instance(), err
	}
	m.power, m.addrs = types.VirtualMachinePowerStatePoweredOn, addrs
	return p.located(m.instance()), nil
}

// clone makes the VM, which is off at first: where it cannot be started that
// must not be the end of the clone task, whose VM would be hard to find.
func (p *Provider) clone(ctx context.Context, w *watcher, o *order, s *site, from *template, in pool) (types.ManagedObjectReference, error) {
	spec, err := cloneSpec(o, s, from, in)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	if s.network != nil {
		if err := onNetwork(ctx, spec, from, s.network); err != nil {
			return types.ManagedObjectReference{}, settingError("network", err)
		}
	}
	res, err := methods.CloneVM_Task(ctx, w.client, &types.CloneVM_Task{This: from.ref, Folder: s.folder, Name: vmName(o.id), Spec: *spec})
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	result, err := w.await(ctx, res.Returnval)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	ref, ok := result.(types.ManagedObjectReference)
	if !ok {
		return ref, fmt.Errorf("%w: the clone task answered %T and no VM", provider.ErrUnavailable, result)
	}
	return ref, nil
}

// What the guest reads, and how it is encoded.
const (
	userDataKey = "guestinfo.userdata"
	metadataKey = "guestinfo.metadata"
	encoding    = ".encoding"
)

// instanceKeys are the entries in an instance's extraConfig that are the instance's alone.
var instanceKeys = []string{recordKey, deletingKey, leftKey, userDataKey, userDataKey + encoding, metadataKey, metadataKey + encoding, guestinfo.Address}

func cloneSpec(o *order, s *site, from *template, in pool) (*types.VirtualMachineCloneSpec, error) {
	entry, err := o.record.option()
	if err != nil {
		return nil, err
	}
	metadata := fmt.Sprintf("instance-id: %q\nlocal-hostname: %q\n", o.id, o.record.Name)
	spec := &types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &in.ref, Datastore: s.datastore, Host: s.host},
		Snapshot: from.snapshot,
		Config: &types.VirtualMachineConfigSpec{
			InstanceUuid: o.id,
			NumCPUs:      int32(o.cpus),
			MemoryMB:     o.memory,
			Annotation:   fmt.Sprintf("Pod VM %s; pod %s/%s", o.record.Name, o.record.Tags[provider.TagNamespace], o.record.Tags[provider.TagPod]),
			ExtraConfig: []types.BaseOptionValue{
				entry, forgotten(),
				&types.OptionValue{Key: enableUUIDKey, Value: "TRUE"},
				&types.OptionValue{Key: userDataKey, Value: o.userData},
				&types.OptionValue{Key: userDataKey + encoding, Value: "gzip+base64"},
				&types.OptionValue{Key: metadataKey, Value: base64.StdEncoding.EncodeToString([]byte(metadata))},
				&types.OptionValue{Key: metadataKey + encoding, Value: "base64"},
			},
		},
	}
	if from.snapshot != nil {
		spec.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
	}
	return spec, nil
}

// onNetwork puts the template's first network card on another network.
func onNetwork(ctx context.Context, spec *types.VirtualMachineCloneSpec, from *template, network object.NetworkReference) error {
	backing, err := network.EthernetCardBackingInfo(ctx)
	if err != nil {
		return err
	}
	// A copy, since the template's is everybody's.
	card := reflect.New(reflect.TypeOf(from.card()).Elem())
	card.Elem().Set(reflect.ValueOf(from.card()).Elem())
	device := card.Interface().(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
	device.Backing, device.MacAddress = backing, ""
	spec.Location.DeviceChange = []types.BaseVirtualDeviceConfigSpec{
		&types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: card.Interface().(types.BaseVirtualDevice)},
	}
	return nil
}

// bringUp starts a VM and waits for its address.
func (p *Provider) bringUp(ctx context.Context, w *watcher, ref types.ManagedObjectReference) ([]netip.Addr, error) {
	if err := p.start(ctx, w, ref); err != nil {
		return nil, fmt.Errorf("power on: %w", err)
	}
	late := fmt.Errorf("%w: the VM has told no address within -vsphere-address-wait (VSPHERE_ADDRESS_WAIT) %v: does its image tell it (guestinfo.outrigger.address) or run VMware's tools, and is there DHCP on its network?", provider.ErrUnavailable, p.cfg.AddressWait)
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.AddressWait, late)
	defer cancel()
	var addrs []netip.Addr
	err := w.watch(ctx, ref, watchedPaths, func(known properties) (bool, error) {
		addrs = addresses(known)
		return len(addrs) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for an address: %w", err)
	}
	return addrs, nil
}
