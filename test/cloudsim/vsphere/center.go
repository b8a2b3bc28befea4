// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/internal/guestinfo"
)

// Credentials and names in the vCenter.
const (
	User       = "outrigger@vsphere.local"
	Password   = "right-password"
	Datacenter = "DC0"
	Cluster    = "DC0_C0"
	Host       = "DC0_H0"
	Datastore  = "LocalDS_0"
	Network    = "VM Network"
	// Template is of a VM with one network card and no snapshot.
	Template = "DC0_H0_VM0"
	// OtherTemplate is another one.
	OtherTemplate = "DC0_H0_VM1"
)

// BootTime is how long a VM takes to tell its address.
const BootTime = 2 * time.Millisecond

// center is the vcsim of this process.
type center struct {
	model  *simulator.Model
	client *vim25.Client
	folder *object.Folder // of VMs

	mu    sync.Mutex
	sites map[types.ManagedObjectReference]*Site // by folder
	vms   map[types.ManagedObjectReference]*vm
	next  uint32
}

// vm is what is known here of a VM.
type vm struct {
	site   *Site
	addr   netip.Addr
	booked bool
	on     bool
}

var theCenter = sync.OnceValues(start)

// start makes a vCenter with one datacenter. Its files are in the temporary
// home folder that cloudsim.Main removes.
func start() (*center, error) {
	log.SetOutput(io.Discard) // vcsim logs every call to what is not there
	if home := os.Getenv("HOME"); home != "" {
		before := os.Getenv("TMPDIR")
		os.Setenv("TMPDIR", home)
		defer os.Setenv("TMPDIR", before)
	}
	m := simulator.VPX()
	m.Autostart = false
	if err := m.Create(); err != nil {
		return nil, fmt.Errorf("vcsim: %w", err)
	}
	m.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(User, Password)}
	m.Service.NewServer()
	ctx := context.Background()
	client, err := vim25.NewClient(ctx, m.Service)
	if err != nil {
		return nil, fmt.Errorf("vcsim: %w", err)
	}
	c := &center{model: m, client: client, sites: map[types.ManagedObjectReference]*Site{}, vms: map[types.ManagedObjectReference]*vm{}}
	root, err := object.NewSearchIndex(client).FindByInventoryPath(ctx, "/"+Datacenter+"/vm")
	if err != nil || root == nil {
		return nil, fmt.Errorf("vcsim: folder of VMs: %w", err)
	}
	c.folder = root.(*object.Folder)
	m.Map().AddHandler(c)
	return c, nil
}

// Reference implements simulator.RegisterObject.
func (*center) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "OutriggerBooks", Value: "books"}
}

// PutObject implements simulator.RegisterObject. A new VM has no record yet;
// see UpdateObject.
func (c *center) PutObject(*simulator.Context, mo.Reference) {}

// RemoveObject implements simulator.RegisterObject.
func (c *center) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.vms[ref]; known != nil {
		known.site.remove(ref)
		delete(c.vms, ref)
	}
}

// UpdateObject implements simulator.RegisterObject: it keeps the books and
// makes guests boot.
func (c *center) UpdateObject(_ *simulator.Context, obj mo.Reference, changes []types.PropertyChange) {
	v, ok := obj.(*mo.VirtualMachine)
	if !ok || v.Parent == nil || v.Config == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	site := c.sites[*v.Parent]
	if site == nil {
		return
	}
	known := c.vms[v.Self]
	if known == nil {
		c.next++
		known = &vm{site: site, addr: netip.AddrFrom4([4]byte{10, byte(c.next >> 16), byte(c.next >> 8), byte(c.next)})}
		c.vms[v.Self] = known
	}
	for _, change := range changes {
		switch change.Name {
		case "config.extraConfig":
			if !known.booked {
				known.booked = site.add(v)
			}
		case "runtime.powerState":
			known.on = change.Val == types.VirtualMachinePowerStatePoweredOn
			// The caller holds the VM's lock.
			go c.boot(v.Self)
		}
	}
}

// boot gives a VM the address that it tells in its present state.
func (c *center) boot(ref types.ManagedObjectReference) {
	time.Sleep(BootTime) // the guest's
	ctx := simulator.Context{Context: context.Background(), Map: c.model.Map()}
	v, ok := ctx.Map.Get(ref).(*simulator.VirtualMachine)
	if !ok {
		return
	}
	ctx.Map.WithLock(&ctx, v, func() {
		c.mu.Lock()
		known := c.vms[ref]
		c.mu.Unlock()
		if known == nil {
			return
		}
		if !known.site.hasTools() {
			c.announce(&ctx, v, known)
			return
		}
		text, nics := "", []types.GuestNicInfo{}
		if known.on {
			text = known.addr.String()
			nics = append(nics, types.GuestNicInfo{Network: Network, Connected: true, IpAddress: []string{"fe80::1", text}})
		}
		ctx.Map.Update(&ctx, v, []types.PropertyChange{{Name: "guest.net", Val: nics}, {Name: "guest.ipAddress", Val: text}})
	})
}

// announce is what a guest does that sets guestinfo.outrigger.address. The
// hypervisor forgets what a guest has set when the VM is off. The caller holds
// the VM's lock.
func (c *center) announce(ctx *simulator.Context, v *simulator.VirtualMachine, known *vm) {
	value := ""
	if known.on {
		value = known.addr.String() + ",2001:db8::1"
	}
	options := []types.BaseOptionValue{}
	for _, option := range v.Config.ExtraConfig {
		if option.GetOptionValue().Key != guestinfo.Address {
			options = append(options, option)
		}
	}
	if value != "" {
		options = append(options, &types.OptionValue{Key: guestinfo.Address, Value: value})
	}
	ctx.Map.Update(ctx, v, []types.PropertyChange{{Name: "config.extraConfig", Val: options}})
}
