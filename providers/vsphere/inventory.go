// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// site holds the objects that the configuration names: where VMs are put and what they
// are cloned from. It is looked up once, and again after a clone has failed.
type site struct {
	folder    types.ManagedObjectReference
	pools     []pool
	datastore *types.ManagedObjectReference
	host      *types.ManagedObjectReference
	network   object.NetworkReference
	template  *template
}

type pool struct {
	name string
	ref  types.ManagedObjectReference
}

// template is the VM of which instances are clones.
type template struct {
	name     string
	ref      types.ManagedObjectReference
	snapshot *types.ManagedObjectReference
	devices  object.VirtualDeviceList
}

// site returns the site.
func (p *Provider) site(ctx context.Context, c *vim25.Client) (*site, error) {
	return p.sites.Get(ctx, "", func() (*site, time.Time, error) {
		s, err := p.lookUp(ctx, c)
		return s, time.Time{}, err
	})
}

// forget makes the next call look up folder and site, of which s is what was known: nil
// is whatever was.
func (p *Provider) forget(s *site) {
	p.sites.Forget("", func(known *site) bool { return s == nil || known == s })
	p.folders.Forget("", func(types.ManagedObjectReference) bool { return true })
}

// folder returns the folder of VMs. Deletions and lists need nothing else of the site.
func (p *Provider) folder(ctx context.Context, c *vim25.Client) (types.ManagedObjectReference, error) {
	return p.folders.Get(ctx, "", func() (folder types.ManagedObjectReference, until time.Time, err error) {
		finder, err := p.finder(ctx, c)
		if err == nil {
			folder, err = p.findFolder(ctx, finder)
		}
		return folder, until, err
	})
}

// inFolder calls do with the folder of VMs, again if it was another that has the name
// now. That the folder is gone never says that a VM is.
func (p *Provider) inFolder(ctx context.Context, c *vim25.Client, do func(types.ManagedObjectReference) error) error {
	for range 2 {
		folder, err := p.folder(ctx, c)
		if err != nil {
			return err
		}
		if err = do(folder); !isGone(err, folder) {
			return err
		}
		p.forget(nil)
	}
	return fmt.Errorf("%w: the folder of VMs is replaced again and again", provider.ErrUnavailable)
}

func (p *Provider) finder(ctx context.Context, c *vim25.Client) (*finder, error) {
	f := find.NewFinder(c, true)
	dc, err := f.DatacenterOrDefault(ctx, p.cfg.Datacenter)
	if err != nil {
		return nil, lookupError("data-center", err)
	}
	return &finder{f.SetDatacenter(dc), c, dc}, nil
}

// finder finds objects by name. An inventory path takes one call. For other names and
// patterns, as in govc, the library's Finder reads whole folders.
type finder struct {
	*find.Finder
	client     *vim25.Client
	datacenter *object.Datacenter
}

// Folders of a datacenter, by what is in them.
const (
	vmFolder        = "vm"
	hostFolder      = "host"
	datastoreFolder = "datastore"
	networkFolder   = "network"
)

// byPath returns the object at an inventory path, absolute or below a folder of the
// datacenter; nil if there is none.
func (f *finder) byPath(ctx context.Context, folder, name string) object.Reference {
	full := name
	if !path.IsAbs(name) {
		full = path.Join(f.datacenter.InventoryPath, folder, name)
	}
	ref, err := object.NewSearchIndex(f.client).FindByInventoryPath(ctx, full)
	if err != nil {
		return nil // the library's Finder reports the error
	}
	return ref
}

// found returns the object at a path, if it is a T, and else what the library's Finder finds.
func found[T any, F object.Reference](ctx context.Context, f *finder, folder, name string, find func(context.Context, string) (F, error)) (object.Reference, error) {
	if ref := f.byPath(ctx, folder, name); ref != nil {
		if _, ok := ref.(T); ok {
			return ref, nil
		}
	}
	ref, err := find(ctx, name)
	return ref, err
}

// pool returns a resource pool; for a cluster its root pool.
func (f *finder) pool(ctx context.Context, name string) (object.Reference, error) {
	if name != "" {
		switch ref := f.byPath(ctx, hostFolder, name).(type) {
		case *object.ResourcePool:
			return ref, nil
		case *object.ClusterComputeResource:
			return ref.ResourcePool(ctx)
		case *object.ComputeResource:
			return ref.ResourcePool(ctx)
		}
	}
	return f.Finder.ResourcePoolOrDefault(ctx, name)
}

// lookUp looks up the site. Its error names everything that is missing.
func (p *Provider) lookUp(ctx context.Context, c *vim25.Client) (*site, error) {
	finder, err := p.finder(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &site{}
	var folderErr, templateErr error
	s.folder, folderErr = p.folder(ctx, c) // always the one that instances are looked for in
	s.template, templateErr = p.findTemplate(ctx, c, finder, p.cfg.Template)
	err = errors.Join(folderErr, settingError("template", templateErr), p.findPools(ctx, finder, s), p.findRest(ctx, finder, s))
	if err != nil {
		return nil, err
	}
	if s.network != nil && s.template.card() == nil {
		return nil, fmt.Errorf("%w: -template (GOVC_TEMPLATE): %s has no network card to put on -network (GOVC_NETWORK)", provider.ErrInvalidArgument, p.cfg.Template)
	}
	return s, nil
}

func (p *Provider) findFolder(ctx context.Context, finder *finder) (types.ManagedObjectReference, error) {
	if p.cfg.Folder == "" {
		folders, err := finder.datacenter.Folders(ctx)
		if err != nil {
			return types.ManagedObjectReference{}, lookupError("data-center", err)
		}
		return folders.VmFolder.Reference(), nil
	}
	folder, err := found[*object.Folder](ctx, finder, vmFolder, p.cfg.Folder, finder.Folder)
	if err != nil {
		return types.ManagedObjectReference{}, lookupError("deploy-folder", err)
	}
	return folder.Reference(), nil
}

func (p *Provider) findTemplate(ctx context.Context, c *vim25.Client, finder *finder, name string) (*template, error) {
	vm, err := found[*object.VirtualMachine](ctx, finder, vmFolder, name, finder.VirtualMachine)
	if err != nil {
		return nil, err
	}
	var properties mo.VirtualMachine
	if err := property.DefaultCollector(c).RetrieveOne(ctx, vm.Reference(), []string{"config.hardware.device", "snapshot"}, &properties); err != nil {
		return nil, err
	}
	t := &template{name: name, ref: vm.Reference()}
	if properties.Config != nil {
		t.devices = properties.Config.Hardware.Device
	}
	if p.cfg.Snapshot == "" {
		return t, nil
	}
	if t.snapshot = snapshotNamed(properties.Snapshot, p.cfg.Snapshot); t.snapshot == nil {
		return nil, fmt.Errorf("%w: -vsphere-snapshot (GOVC_SNAPSHOT): %s has no snapshot %s", provider.ErrNotFound, name, p.cfg.Snapshot)
	}
	return t, nil
}

func snapshotNamed(info *types.VirtualMachineSnapshotInfo, name string) *types.ManagedObjectReference {
	for _, tree := range allSnapshots(info) {
		if tree.Name == name {
			return &tree.Snapshot
		}
	}
	return nil
}

func allSnapshots(info *types.VirtualMachineSnapshotInfo) (all []types.VirtualMachineSnapshotTree) {
	if info == nil {
		return nil
	}
	all = slices.Clone(info.RootSnapshotList)
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].ChildSnapshotList...)
	}
	return all
}

func (t *template) card() types.BaseVirtualDevice {
	cards := t.devices.SelectByType((*types.VirtualEthernetCard)(nil))
	if len(cards) == 0 {
		return nil
	}
	return cards[0]
}

func (p *Provider) findPools(ctx context.Context, finder *finder, s *site) error {
	if p.cfg.Host != "" && len(p.cfg.Pools) == 0 {
		return nil // findRest sets the host's own pool
	}
	names := p.cfg.Pools
	if len(names) == 0 {
		names = []string{""}
	}
	var errs []error
	for _, name := range names {
		ref, err := finder.pool(ctx, name)
		if err != nil {
			errs = append(errs, settingError("resource-pool", err))
			continue
		}
		s.pools = append(s.pools, pool{name, ref.Reference()})
	}
	return errors.Join(errs...)
}

func (p *Provider) findRest(ctx context.Context, finder *finder, s *site) error {
	var errs []error
	if p.cfg.Datastore != "" {
		ds, err := found[*object.Datastore](ctx, finder, datastoreFolder, p.cfg.Datastore, finder.Datastore)
		if err == nil {
			ref := ds.Reference()
			s.datastore = &ref
		}
		errs = append(errs, settingError("data-store", err))
	}
	if p.cfg.Network != "" {
		network, err := found[object.NetworkReference](ctx, finder, networkFolder, p.cfg.Network, finder.Network)
		s.network, _ = network.(object.NetworkReference)
		errs = append(errs, settingError("network", err))
	}
	if p.cfg.Host != "" {
		errs = append(errs, settingError("host", p.findHost(ctx, finder, s)))
	}
	return errors.Join(errs...)
}

func (p *Provider) findHost(ctx context.Context, finder *finder, s *site) error {
	host, err := finder.HostSystem(ctx, p.cfg.Host)
	if err != nil {
		return err
	}
	ref := host.Reference()
	s.host = &ref
	if len(s.pools) > 0 {
		return nil
	}
	root, err := host.ResourcePool(ctx)
	if err != nil {
		return err
	}
	s.pools = []pool{{p.cfg.Host, root.Reference()}}
	return nil
}

// lookupError is settingError for the folder and datacenter of instances. It is never
// ErrNotFound: callers would take that for a missing instance.
func lookupError(flag string, err error) error {
	if err = settingError(flag, err); !errors.Is(err, provider.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: %s", provider.ErrInvalidArgument, strings.ReplaceAll(err.Error(), provider.ErrNotFound.Error()+": ", ""))
}

// settingError adds to an error the setting that it is about, by its flag.
func settingError(flag string, err error) error { return config.About[Config](flag, classify(err)) }
