// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"github.com/outrigger/outrigger/provider"
)

// piece is an interface, address or disk whose name says that it is part of one
// of our VMs.
type piece struct {
	name string
	tags map[string]string
}

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
	err := pages(ctx, p.cloud.ips.NewListPager(group, nil), func(page armnetwork.PublicIPAddressesClientListResponse) {
		for _, ip := range page.Value {
			if ip.Properties != nil {
				public[strings.ToLower(deref(ip.ID))] = deref(ip.Properties.IPAddress)
			}
			inv.ips = keep(inv.ips, ip.Name, ip.Tags)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list public addresses: %w", err)
	}
	err = pages(ctx, p.cloud.nics.NewListPager(group, nil), func(page armnetwork.InterfacesClientListResponse) {
		for _, nic := range page.Value {
			inv.nics = keep(inv.nics, nic.Name, nic.Tags)
			inv.addresses[strings.ToLower(deref(nic.ID))] = p.addressesOf(nic, public)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	err = pages(ctx, p.cloud.disks.NewListByResourceGroupPager(group, nil), func(page armcompute.DisksClientListByResourceGroupResponse) {
		for _, disk := range page.Value {
			inv.disks = keep(inv.disks, disk.Name, disk.Tags)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	return inv, nil
}

// pages reads all pages of a list.
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

func keep(list []piece, name *string, tags map[string]*string) []piece {
	if owner(deref(name)) == "" {
		return list
	}
	return append(list, piece{*name, values(tags)})
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
	err = pages(ctx, p.cloud.vms.NewListPager(group, nil), func(page armcompute.VirtualMachinesClientListResponse) {
		for _, vm := range page.Value {
			name := strings.ToLower(deref(vm.Name))
			known[name] = true
			if vmNames.MatchString(name) && provider.HasTags(values(vm.Tags), match) {
				instance := p.describe(p.ref(name), vm)
				instance.IPs = inv.addresses[strings.ToLower(primaryNIC(vm))]
				list = append(list, *instance)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return append(list, p.orphans(inv, known, match)...), nil
}

// orphans are the VMs of pieces that have none. A VM that is being made has its pieces before itself,
// so that it is among them until then.
func (p *Provider) orphans(inv *inventory, known map[string]bool, match map[string]string) []provider.Instance {
	orphans := map[string]map[string]string{}
	for _, piece := range slices.Concat(inv.nics, inv.ips, inv.disks) {
		name := owner(piece.name)
		if !known[name] && provider.HasTags(piece.tags, match) {
			orphans[name] = piece.tags
		}
	}
	var list []provider.Instance
	for _, name := range slices.Sorted(maps.Keys(orphans)) {
		tags := orphans[name]
		list = append(list, provider.Instance{
			ID: p.id(p.ref(name)), Name: tags[tagName], Key: tags[provider.TagKey], Tags: tags, Region: p.cfg.Region, State: provider.StateDeleting,
		})
	}
	return list
}
