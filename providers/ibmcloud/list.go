// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// pageSize is the most that the API gives at a time.
const pageSize int64 = 100

// few is up to how many instances are looked up one by one, instead of listing
// the VPC.
const few = 10

// ListInstances implements provider.Lister: the volumes with the tags, then
// their instances. A boot volume that has lost its instance is listed too.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	tag, err := narrowest(match)
	if err != nil {
		return nil, nil // no volume can have such a tag
	}
	owned := map[string]map[string]string{} // tags by instance
	err = p.volumes(ctx, tag, func(v *vpcv1.Volume) {
		tags := tagsOf(v.UserTags)
		if tags == nil || !isBoot(v) || !provider.HasTags(tags, match) {
			return
		}
		if owner := ownerOf(v); owner != nil {
			owned[value(owner.ID)] = tags
			return
		}
		list = append(list, orphan(v, tags))
	})
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	err = p.each(ctx, slices.Collect(maps.Keys(owned)), func(i *vpcv1.Instance) {
		if names.IsHashed(value(i.Name)) {
			list = append(list, *instanceOf(i, owned[value(i.ID)]))
		}
	})
	return list, err
}

// narrowest returns the tag that the fewest volumes have.
func narrowest(match map[string]string) (string, error) {
	keys := slices.Sorted(maps.Keys(match))
	for _, key := range []string{provider.TagCluster, provider.TagNode, provider.TagKey} {
		if _, ok := match[key]; ok {
			keys = slices.Insert(keys, 0, key)
		}
	}
	tags, err := userTags(map[string]string{keys[0]: match[keys[0]]})
	if err != nil {
		return "", err
	}
	return tags[0], nil
}

func orphan(v *vpcv1.Volume, tags map[string]string) provider.Instance {
	o := provider.Instance{
		ID: byVolume + value(v.ID), Name: value(v.Name), Key: tags[provider.TagKey], Tags: tags, State: provider.StateDeleting,
	}
	if v.CreatedAt != nil {
		o.Created = time.Time(*v.CreatedAt).UTC()
	}
	return o
}

// ownerOf returns the instance that a volume belongs to, or nil.
func ownerOf(v *vpcv1.Volume) *vpcv1.InstanceReference {
	for _, attachment := range v.VolumeAttachments {
		if attachment.Instance != nil {
			return attachment.Instance
		}
	}
	return nil
}

// next is the part of a page that says where the next begins.
type next interface{ GetNextStart() (*string, error) }

// pages reads all pages of a list. page reads one, from a start that is nil at first.
func pages[P next](page func(start *string) (P, error)) error {
	for start := (*string)(nil); ; {
		got, err := page(start)
		if err != nil {
			return err
		}
		if start, err = got.GetNextStart(); err != nil || start == nil {
			return err
		}
	}
}

// volumes reads the volumes with a tag.
func (p *Provider) volumes(ctx context.Context, tag string, each func(*vpcv1.Volume)) error {
	return pages(func(start *string) (*listPage, error) {
		got := new(listPage)
		_, err := ask(rest.Into(ctx, got), p.api.ListVolumesWithContext, vpcv1.ListVolumesOptions{Tag: &tag, Limit: new(pageSize), Start: start})
		for i := range got.Volumes {
			each(got.Volumes[i].model())
		}
		return got, err
	})
}

// each reads the instances of those ids.
func (p *Provider) each(ctx context.Context, ids []string, do func(*vpcv1.Instance)) error {
	if len(ids) > few {
		wanted := make(map[string]bool, len(ids))
		for _, id := range ids {
			wanted[id] = true
		}
		return p.all(ctx, func(i *vpcv1.Instance) {
			if wanted[value(i.ID)] {
				do(i)
			}
		})
	}
	for _, id := range ids {
		instance, err := p.getInstance(ctx, id)
		if err != nil {
			return err
		}
		if instance != nil {
			do(instance)
		}
	}
	return nil
}

// all reads all pages of the VPC's instances.
func (p *Provider) all(ctx context.Context, do func(*vpcv1.Instance)) error {
	home, err := p.home(ctx)
	if err != nil {
		return err
	}
	return pages(func(start *string) (*listPage, error) {
		got := new(listPage)
		_, err := ask(rest.Into(ctx, got), p.api.ListInstancesWithContext, vpcv1.ListInstancesOptions{VPCID: &home.vpc, Limit: new(pageSize), Start: start})
		for i := range got.Instances {
			do(got.Instances[i].model())
		}
		return got, err
	})
}

// states of an instance, by the constants of Instance.Status.
var states = map[string]provider.InstanceState{
	"pending":    provider.StatePending,
	"starting":   provider.StatePending,
	"restarting": provider.StatePending,
	"running":    provider.StateRunning,
	"stopped":    provider.StateStopped,
	"failed":     provider.StateStopped,
	"deleting":   provider.StateDeleting,
}

// instanceOf returns the instance of the contract.
func instanceOf(i *vpcv1.Instance, tags map[string]string) *provider.Instance {
	a := &provider.Instance{
		ID: value(i.ID), Name: value(i.Name), IPs: addresses(i), Key: tags[provider.TagKey], Tags: tags,
		State: states[value(i.Status)],
	}
	if i.CreatedAt != nil {
		a.Created = time.Time(*i.CreatedAt).UTC()
	}
	if i.Zone != nil {
		a.Zone = value(i.Zone.Name)
		a.Region = names.RegionOf(a.Zone)
	}
	if i.Profile != nil {
		a.Type = value(i.Profile.Name)
	}
	return a
}

// addresses returns that of the primary interface, then that of the tunnel's;
// nothing while one of them is not chosen, which the API shows as 0.0.0.0.
func addresses(i *vpcv1.Instance) []netip.Addr {
	if i.PrimaryNetworkInterface == nil {
		return nil
	}
	first, ok := address(*i.PrimaryNetworkInterface)
	if !ok {
		return nil
	}
	list := []netip.Addr{first}
	for _, nic := range i.NetworkInterfaces {
		if value(nic.ID) == value(i.PrimaryNetworkInterface.ID) {
			continue
		}
		other, ok := address(nic)
		if !ok {
			return nil
		}
		list = append(list, other)
	}
	return list
}

func address(nic vpcv1.NetworkInterfaceInstanceContextReference) (netip.Addr, bool) {
	if nic.PrimaryIP == nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(value(nic.PrimaryIP.Address))
	return a, err == nil && !a.IsUnspecified()
}

// failureOf returns the reason why an instance has failed; nil if it has not.
func failureOf(i *vpcv1.Instance) error {
	if value(i.Status) != "failed" {
		return nil
	}
	reason := vpcv1.InstanceStatusReason{}
	if len(i.StatusReasons) > 0 {
		reason = i.StatusReasons[0]
	}
	return failed(reason.Code, reason.Message, reasons)
}
