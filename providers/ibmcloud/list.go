// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
)

// pageSize is the most that the API gives at a time.
const pageSize int64 = 100

// few is up to how many instances are looked up one by one, instead of listing
// the VPC.
const few = 10

// ListInstances implements provider.Lister: the volumes with the tags, then
// their instances. A boot volume that has lost its instance is listed too.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	tag, err := narrowest(match)
	if err != nil {
		return nil, nil // no volume can have such a tag
	}
	owned := map[string]map[string]string{} // tags by instance
	var list []provider.Instance
	err = p.volumes(ctx, tag, func(v *vpcv1.Volume) {
		tags := tagsOf(v.UserTags)
		if tags == nil || !provider.HasTags(tags, match) {
			return
		}
		if owner := ownerOf(v); owner != nil {
			owned[value(owner.ID)] = tags
			return
		}
		list = append(list, orphan(v, tags))
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: volumes: %w", classify(err))
	}
	err = p.each(ctx, slices.Collect(maps.Keys(owned)), func(i *vpcv1.Instance) {
		if ownName.MatchString(value(i.Name)) {
			list = append(list, *instanceOf(i, owned[value(i.ID)]))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", classify(err))
	}
	return list, nil
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

// volumes reads all pages of the volumes with a tag.
func (p *Provider) volumes(ctx context.Context, tag string, each func(*vpcv1.Volume)) error {
	options := &vpcv1.ListVolumesOptions{Tag: &tag, Limit: ptr(pageSize)}
	for {
		page, reply, err := p.api.ListVolumesWithContext(ctx, options)
		if err := refused(reply, err); err != nil {
			return err
		}
		for i := range page.Volumes {
			each(&page.Volumes[i])
		}
		next, err := page.GetNextStart()
		if err != nil || next == nil {
			return err
		}
		options.Start = next
	}
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
	options := &vpcv1.ListInstancesOptions{VPCID: &home.vpc, Limit: ptr(pageSize)}
	for {
		page, reply, err := p.api.ListInstancesWithContext(ctx, options)
		if err := refused(reply, err); err != nil {
			return err
		}
		for i := range page.Instances {
			do(&page.Instances[i])
		}
		next, err := page.GetNextStart()
		if err != nil || next == nil {
			return err
		}
		options.Start = next
	}
}
