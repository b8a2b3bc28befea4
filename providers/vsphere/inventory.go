// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
)

// site is where VMs are put: what the configuration's names stand for. It is
// looked up once, and again after a clone failed.
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

// template is what VMs are clones of.
type template struct {
	name     string
	ref      types.ManagedObjectReference
	snapshot *types.ManagedObjectReference
	devices  object.VirtualDeviceList
}

// sites keeps the site.
type sites struct {
	mu   sync.Mutex
	last *site
}

func (s *sites) get() *site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *sites) set(last *site) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = last
}

// site returns the site; several callers may look it up at a time at first.
func (p *Provider) site(ctx context.Context, c *vim25.Client) (*site, error) {
	if s := p.sites.get(); s != nil {
		return s, nil
	}
	s, err := p.lookUp(ctx, c)
	if err != nil {
		return nil, err
	}
	p.sites.set(s)
	return s, nil
}

// folder is the site's; deletions and lists need no more of it.
func (p *Provider) folder(ctx context.Context, c *vim25.Client) (types.ManagedObjectReference, error) {
	if s := p.sites.get(); s != nil {
		return s.folder, nil
	}
	p.foldersMu.Lock()
	ref := p.folderRef
	p.foldersMu.Unlock()
	if ref != nil {
		return *ref, nil
	}
	finder, err := p.finder(ctx, c)
	if err != nil {
		return types.ManagedObjectReference{}, err
	}
	found, err := p.findFolder(ctx, finder)
	if err == nil {
		p.foldersMu.Lock()
		p.folderRef = &found
		p.foldersMu.Unlock()
	}
	return found, err
}

func (p *Provider) finder(ctx context.Context, c *vim25.Client) (*finder, error) {
	f := find.NewFinder(c, true)
	dc, err := f.DatacenterOrDefault(ctx, p.cfg.Datacenter)
	if err != nil {
		return nil, place("data-center", "GOVC_DATACENTER", err)
	}
	return &finder{f.SetDatacenter(dc), c, dc}, nil
}

// finder is the library's, which knows names and patterns of govc and asks for
// whole folders, with a shorter way for what is an inventory path: one call.
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

// at returns what is at a path, also one below the datacenter's folder, or nil.
func (f *finder) at(ctx context.Context, folder, name string) object.Reference {
	full := name
	if !path.IsAbs(name) {
		full = path.Join(f.datacenter.InventoryPath, folder, name)
	}
	found, err := object.NewSearchIndex(f.client).FindByInventoryPath(ctx, full)
	if err != nil {
		return nil // the longer way reports it
	}
	return found
}

func (f *finder) folder(ctx context.Context, name string) (object.Reference, error) {
	if found, ok := f.at(ctx, vmFolder, name).(*object.Folder); ok {
		return found, nil
	}
	return f.Finder.Folder(ctx, name)
}

func (f *finder) machine(ctx context.Context, name string) (object.Reference, error) {
	if found, ok := f.at(ctx, vmFolder, name).(*object.VirtualMachine); ok {
		return found, nil
	}
	return f.Finder.VirtualMachine(ctx, name)
}

func (f *finder) datastore(ctx context.Context, name string) (object.Reference, error) {
	if found, ok := f.at(ctx, datastoreFolder, name).(*object.Datastore); ok {
		return found, nil
	}
	return f.Finder.Datastore(ctx, name)
}

func (f *finder) network(ctx context.Context, name string) (object.NetworkReference, error) {
	if found, ok := f.at(ctx, networkFolder, name).(object.NetworkReference); ok {
		return found, nil
	}
	return f.Finder.Network(ctx, name)
}

// pool also takes a cluster, for its root pool.
func (f *finder) pool(ctx context.Context, name string) (object.Reference, error) {
	if name != "" {
		switch found := f.at(ctx, hostFolder, name).(type) {
		case *object.ResourcePool:
			return found, nil
		case *object.ClusterComputeResource:
			return found.ResourcePool(ctx)
		case *object.ComputeResource:
			return found.ResourcePool(ctx)
		}
	}
	return f.Finder.ResourcePoolOrDefault(ctx, name)
}

// lookUp reports everything that is not there.
func (p *Provider) lookUp(ctx context.Context, c *vim25.Client) (*site, error) {
	finder, err := p.finder(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &site{}
	var folderErr, templateErr error
	s.folder, folderErr = p.findFolder(ctx, finder)
	s.template, templateErr = p.findTemplate(ctx, c, finder, p.cfg.Template)
	err = errors.Join(folderErr, named("template", "GOVC_TEMPLATE", templateErr), p.findPools(ctx, finder, s), p.findRest(ctx, finder, s))
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
			return types.ManagedObjectReference{}, place("data-center", "GOVC_DATACENTER", err)
		}
		return folders.VmFolder.Reference(), nil
	}
	folder, err := finder.folder(ctx, p.cfg.Folder)
	if err != nil {
		return types.ManagedObjectReference{}, place("deploy-folder", "GOVC_FOLDER", err)
	}
	return folder.Reference(), nil
}

func (p *Provider) findTemplate(ctx context.Context, c *vim25.Client, finder *finder, name string) (*template, error) {
	vm, err := finder.machine(ctx, name)
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
	if info == nil {
		return nil
	}
	for trees := info.RootSnapshotList; len(trees) > 0; {
		tree := trees[0]
		if tree.Name == name {
			return &tree.Snapshot
		}
		trees = append(trees[1:], tree.ChildSnapshotList...)
	}
	return nil
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
		return nil // the host's own, by findRest
	}
	names := p.cfg.Pools
	if len(names) == 0 {
		names = []string{""}
	}
	var errs []error
	for _, name := range names {
		found, err := finder.pool(ctx, name)
		if err != nil {
			errs = append(errs, named("resource-pool", "GOVC_RESOURCE_POOL", err))
			continue
		}
		s.pools = append(s.pools, pool{name, found.Reference()})
	}
	return errors.Join(errs...)
}

func (p *Provider) findRest(ctx context.Context, finder *finder, s *site) error {
	var errs []error
	if p.cfg.Datastore != "" {
		ds, err := finder.datastore(ctx, p.cfg.Datastore)
		if err == nil {
			ref := ds.Reference()
			s.datastore = &ref
		}
		errs = append(errs, named("data-store", "GOVC_DATASTORE", err))
	}
	if p.cfg.Network != "" {
		network, err := finder.network(ctx, p.cfg.Network)
		s.network = network
		errs = append(errs, named("network", "GOVC_NETWORK", err))
	}
	if p.cfg.Host != "" {
		errs = append(errs, named("host", "GOVC_HOST", p.findHost(ctx, finder, s)))
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

// place is named for where instances are looked for. It is never ErrNotFound:
// without the place nobody has looked for the instance.
func place(flag, env string, err error) error {
	if err = named(flag, env, err); !errors.Is(err, provider.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%w: %s", provider.ErrInvalidArgument, strings.TrimPrefix(err.Error(), provider.ErrNotFound.Error()+": "))
}

// named returns which setting an error is about.
func named(flag, env string, err error) error {
	if err == nil {
		return nil
	}
	return classify(fmt.Errorf("-%s (%s): %w", flag, env, err))
}
