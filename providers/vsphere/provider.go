// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes VMs in one vCenter. Several processes may have one for the
// same folder at a time.
type Provider struct {
	cfg   Config
	conn  *connection
	sites cached.Values[*site]
	locks keylock.Locks
	// pace is how often busy objects are tried again.
	pace poll.Pace
	// cloneWait is how long a VM of our name may lack a record, as it does
	// while it is being cloned, before it counts as somebody else's.
	cloneWait time.Duration
	folders   cached.Values[types.ManagedObjectReference]
}

// New checks cfg. It connects when it is first called: a vCenter that is down
// for a while must not keep this process from starting.
func New(cfg Config) (*Provider, error) {
	u, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	return &Provider{
		cfg: cfg, conn: newConnection(cfg, u),
		pace: poll.Pace{First: 100 * time.Millisecond, Max: 5 * time.Second}, cloneWait: 10 * time.Minute,
	}, nil
}

// Teardown ends the session; VMs run on.
func (p *Provider) Teardown() error { return p.TeardownContext(context.Background()) }

// TeardownContext implements provider.ContextCloser.
func (p *Provider) TeardownContext(ctx context.Context) error {
	p.conn.close(ctx)
	return nil
}

// find returns the instance's VM, or nil.
func (p *Provider) find(ctx context.Context, c *vim25.Client, id string) (*machine, error) {
	ref, err := p.child(ctx, c, vmName(id))
	if err != nil || ref == nil {
		return nil, err
	}
	return p.read(ctx, c, *ref)
}

// child returns the VM of a name in the folder, or nil.
func (p *Provider) child(ctx context.Context, c *vim25.Client, name string) (ref *types.ManagedObjectReference, err error) {
	err = p.inFolder(ctx, c, func(folder types.ManagedObjectReference) error {
		res, err := methods.FindChild(ctx, c, &types.FindChild{This: *c.ServiceContent.SearchIndex, Entity: folder, Name: name})
		if err == nil {
			ref = res.Returnval
		}
		return err
	})
	return ref, err
}

// read returns a VM as it is, or nil when it is gone.
func (p *Provider) read(ctx context.Context, c *vim25.Client, ref types.ManagedObjectReference) (*machine, error) {
	contents, err := retrieve(ctx, c, types.ObjectSpec{Obj: ref}, vmPaths)
	if isGone(err, ref) || err == nil && len(contents) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return contents[0].machine()
}

// content is vCenter's data of one object.
type content types.ObjectContent

func (c content) properties() properties {
	p := properties{}
	for _, property := range c.PropSet {
		p[property.Name] = property.Val
	}
	return p
}

func (c content) machine() (*machine, error) { return machineOf(c.Obj, c.properties()) }

// pageSize is how many VMs vCenter reports in one reply.
const pageSize = 500

// retrieve reads properties of VMs.
func retrieve(ctx context.Context, c *vim25.Client, from types.ObjectSpec, paths []string) ([]content, error) {
	collector := c.ServiceContent.PropertyCollector
	res, err := methods.RetrievePropertiesEx(ctx, c, &types.RetrievePropertiesEx{
		This: collector,
		SpecSet: []types.PropertyFilterSpec{{
			ObjectSet: []types.ObjectSpec{from},
			PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: paths}},
		}},
		Options: types.RetrieveOptions{MaxObjects: pageSize},
	})
	if err != nil || res.Returnval == nil {
		return nil, err
	}
	list, page := []content(nil), res.Returnval
	for {
		for _, object := range page.Objects {
			list = append(list, content(object))
		}
		if page.Token == "" {
			return list, nil
		}
		more, err := methods.ContinueRetrievePropertiesEx(ctx, c, &types.ContinueRetrievePropertiesEx{This: collector, Token: page.Token})
		if err != nil {
			return nil, err
		}
		page = &more.Returnval
	}
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance %s", instanceID)
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	m, err := p.existing(ctx, c, instanceID)
	if err != nil {
		return nil, err
	}
	return p.located(m.instance()), nil
}

// existing returns a VM of ours, or ErrNotFound; one that is still being cloned
// is not there yet.
func (p *Provider) existing(ctx context.Context, c *vim25.Client, id string) (*machine, error) {
	if !names.IsUUID(id) {
		return nil, fmt.Errorf("%w: no instance %q: ids are UUIDs", provider.ErrNotFound, id)
	}
	m, err := p.find(ctx, c, id)
	if err != nil {
		return nil, err
	}
	if m == nil || m.record == nil {
		return nil, fmt.Errorf("%w: no instance %s in the folder of pod VMs", provider.ErrNotFound, id)
	}
	return m, nil
}

// settled returns the VM once it has a record, and nil when it went away.
func (p *Provider) settled(ctx context.Context, c *vim25.Client, m *machine) (*machine, error) {
	if m.record != nil {
		return m, nil
	}
	ref := m.ref
	err := p.untilRecorded(ctx, m.name, recordKey, func(ctx context.Context) (bool, error) {
		var err error
		m, err = p.read(ctx, c, ref)
		return m == nil || m.record != nil, err
	})
	return m, err
}

// untilRecorded calls look until it returns true, and takes a VM that then lacks a record for somebody else's.
func (p *Provider) untilRecorded(ctx context.Context, name, key string, look func(context.Context) (bool, error)) error {
	foreign := fmt.Errorf("%w: VM %s is somebody else's: it lacks our record (extraConfig %s)", provider.ErrPermissionDenied, name, key)
	ctx, cancel := context.WithTimeoutCause(ctx, p.cloneWait, foreign)
	defer cancel()
	return p.pace.Until(ctx, func() (bool, error) { return look(ctx) })
}

// located adds where instances are.
func (p *Provider) located(i *provider.Instance) *provider.Instance {
	i.Region = p.cfg.Datacenter
	return i
}

// ListInstances implements provider.Lister.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	contents, err := p.inventory(ctx, c, vmPaths)
	if err != nil {
		return nil, err
	}
	for _, vm := range contents {
		m, err := vm.machine()
		if err != nil {
			logger().Warn("a VM's record does not parse; the VM is left alone", "error", err)
			continue
		}
		if m.record != nil && m.name == vmName(instanceID(m.record.Key)) && provider.HasTags(m.record.Tags, match) {
			list = append(list, *p.located(m.instance()))
		}
	}
	return list, nil
}

// inventory reads properties of all VMs in the folder.
func (p *Provider) inventory(ctx context.Context, c *vim25.Client, paths []string) (contents []content, err error) {
	err = p.inFolder(ctx, c, func(folder types.ManagedObjectReference) (err error) {
		contents, err = retrieve(ctx, c, types.ObjectSpec{Obj: folder, SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "Folder", Path: "childEntity"},
		}}, paths)
		return err
	})
	return contents, err
}
