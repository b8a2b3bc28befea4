// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// API versions of the lists, those of the SDK. Lists are read without the SDK's models, which decode each member
// of each resource, several times.
const (
	vmAPIVersion   = "2026-04-01"
	diskAPIVersion = "2026-03-02"
)

// resource is what all resources of a list have. Tags are decoded where they are wanted.
type resource struct {
	ID   string   `json:"id"`
	Name string   `json:"name"`
	Tags rest.Raw `json:"tags"`
}

func (r *resource) tags() (tags map[string]string, err error) {
	return tags, rest.DecodeRaw(r.Tags, &tags)
}

type listedIP struct {
	resource
	Properties struct {
		IPAddress string `json:"ipAddress"`
	} `json:"properties"`
}

type listedNIC struct {
	resource
	Properties struct {
		IPConfigurations []struct {
			Properties struct {
				PrivateIPAddress string   `json:"privateIPAddress"`
				PublicIPAddress  listedIP `json:"publicIPAddress"`
			} `json:"properties"`
		} `json:"ipConfigurations"`
	} `json:"properties"`
}

func (n *listedNIC) ends() (list []end) {
	for i := range n.Properties.IPConfigurations {
		c := &n.Properties.IPConfigurations[i].Properties
		list = append(list, end{c.PrivateIPAddress, c.PublicIPAddress.Properties.IPAddress, c.PublicIPAddress.ID})
	}
	return list
}

type listedVM struct {
	resource
	Location   string    `json:"location"`
	Zones      []*string `json:"zones"`
	Properties struct {
		HardwareProfile struct {
			VMSize armcompute.VirtualMachineSizeTypes `json:"vmSize"`
		} `json:"hardwareProfile"`
		NetworkProfile struct {
			NetworkInterfaces []struct {
				ID         string `json:"id"`
				Properties struct {
					Primary bool `json:"primary"`
				} `json:"properties"`
			} `json:"networkInterfaces"`
		} `json:"networkProfile"`
		ProvisioningState string    `json:"provisioningState"`
		TimeCreated       time.Time `json:"timeCreated"`
	} `json:"properties"`
}

// model returns the SDK's model of it, without tags.
func (v *listedVM) model() *armcompute.VirtualMachine {
	p := &v.Properties
	var nics []*armcompute.NetworkInterfaceReference
	for i := range p.NetworkProfile.NetworkInterfaces {
		n := &p.NetworkProfile.NetworkInterfaces[i]
		nics = append(nics, &armcompute.NetworkInterfaceReference{ID: &n.ID, Properties: &armcompute.NetworkInterfaceReferenceProperties{Primary: &n.Properties.Primary}})
	}
	return &armcompute.VirtualMachine{Location: &v.Location, Zones: v.Zones, Properties: &armcompute.VirtualMachineProperties{
		HardwareProfile: &armcompute.HardwareProfile{VMSize: &p.HardwareProfile.VMSize}, NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: nics},
		ProvisioningState: &p.ProvisioningState, TimeCreated: &p.TimeCreated,
	}}
}

// piece is an interface, address or disk whose name says that it is part of one
// of our VMs.
type piece = resource

// inventory are the pieces in a resource group.
type inventory struct {
	nics, ips, disks []piece
	// addresses of interfaces by their lower-case resource ids.
	addresses map[string][]netip.Addr
}

// parts lists the pieces. Azure cannot filter these lists.
func (p *Provider) parts(ctx context.Context, group string) (*inventory, error) {
	inv := &inventory{addresses: map[string][]netip.Addr{}}
	public := map[string]string{}
	err := each(ctx, p.cloud, p.cloud.listURL(group, "Microsoft.Network/publicIPAddresses", networkAPIVersion), func(ip *listedIP) error {
		public[strings.ToLower(ip.ID)] = ip.Properties.IPAddress
		inv.ips = keep(inv.ips, ip.resource)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list public addresses: %w", err)
	}
	err = each(ctx, p.cloud, p.cloud.listURL(group, "Microsoft.Network/networkInterfaces", networkAPIVersion), func(nic *listedNIC) error {
		inv.nics = keep(inv.nics, nic.resource)
		inv.addresses[strings.ToLower(nic.ID)] = p.addressesOf(nic.ends(), public)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	err = each(ctx, p.cloud, p.cloud.listURL(group, "Microsoft.Compute/disks", diskAPIVersion), func(disk *resource) error {
		inv.disks = keep(inv.disks, *disk)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	return inv, nil
}

// listURL returns that of the resources of a type in a resource group.
func (c *clients) listURL(group, kind, version string) string {
	return c.url("/subscriptions/"+c.subscription+"/resourceGroups/"+url.PathEscape(group)+"/providers/"+kind, version)
}

// each reads all pages of a list.
func each[T any](ctx context.Context, c *clients, first string, do func(*T) error) error {
	for next := first; next != ""; {
		var page struct {
			Value    []T    `json:"value"`
			NextLink string `json:"nextLink"`
		}
		if err := c.get(ctx, next, &page); err != nil {
			return err
		}
		for i := range page.Value {
			if err := do(&page.Value[i]); err != nil {
				return err
			}
		}
		next = page.NextLink
	}
	return nil
}

// pages reads all pages of a list of the SDK.
func pages[P any](ctx context.Context, pager *runtime.Pager[P], each func(P)) error {
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		each(page)
	}
	return nil
}

func keep(list []piece, r resource) []piece {
	if owner(r.Name) == "" {
		return list
	}
	return append(list, r)
}

// ListInstances implements provider.Lister. What has stayed of a VM that is
// gone is listed under the VM's id, so that somebody deletes it.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	group := p.cfg.ResourceGroup
	// The parts come first: a VM that is made meanwhile has no parts then, and
	// parts without a VM are nobody's.
	inv, err := p.parts(ctx, group)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	err = each(ctx, p.cloud, p.cloud.listURL(group, vmType, vmAPIVersion), func(vm *listedVM) error {
		name := strings.ToLower(vm.Name)
		known[name] = true
		if !isVMName(name) {
			return nil
		}
		tags, err := vm.tags()
		if err != nil || !provider.HasTags(tags, match) {
			return err
		}
		model := vm.model()
		instance := p.describe(p.ref(name), model, tags)
		instance.IPs = inv.addresses[strings.ToLower(primaryNIC(model))]
		list = append(list, *instance)
		return nil
	})
	if err != nil {
		return nil, err
	}
	orphans, err := p.orphans(inv, known, match)
	return append(list, orphans...), err
}

// orphans are the VMs of pieces that have none. A VM that is being made has its pieces before itself,
// so that it is among them until then.
func (p *Provider) orphans(inv *inventory, known map[string]bool, match map[string]string) ([]provider.Instance, error) {
	orphans := map[string]map[string]string{}
	for _, piece := range slices.Concat(inv.nics, inv.ips, inv.disks) {
		name := owner(piece.Name)
		if known[name] {
			continue
		}
		tags, err := piece.tags()
		if err != nil {
			return nil, err
		}
		if provider.HasTags(tags, match) {
			orphans[name] = tags
		}
	}
	var list []provider.Instance
	for _, name := range slices.Sorted(maps.Keys(orphans)) {
		tags := orphans[name]
		list = append(list, provider.Instance{
			ID: p.id(p.ref(name)), Name: tags[tagName], Key: tags[provider.TagKey], Tags: tags, Region: p.cfg.Region, State: provider.StateDeleting,
		})
	}
	return list, nil
}
