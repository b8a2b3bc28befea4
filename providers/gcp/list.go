// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// pageSize is the most that the API gives at a time.
const pageSize = "500"

// ListInstances implements provider.Lister. It looks into all zones of the
// project: those that the configuration names may have been others before. Root
// disks that have lost their instance are listed as instances too.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	err = p.eachInstance(ctx, match, func(i *instance, tags map[string]string) {
		list = append(list, *i.tagged(tags, p.cfg.UsePublicIP))
	})
	if err != nil {
		return nil, err
	}
	orphans, err := p.orphans(ctx, match)
	if err != nil {
		return nil, fmt.Errorf("disks: %w", err)
	}
	for _, orphan := range orphans {
		if !slices.ContainsFunc(list, func(i provider.Instance) bool { return i.ID == orphan.ID }) {
			list = append(list, orphan)
		}
	}
	return list, nil
}

// scope is what a list of all zones has of one of them.
type scope struct {
	Instances []instance `json:"instances"`
	Disks     []volume   `json:"disks"`
}

// instances returns those of ours with all the tags.
func (p *Provider) instances(ctx context.Context, match map[string]string) ([]instance, error) {
	var list []instance
	err := p.eachInstance(ctx, match, func(i *instance, _ map[string]string) { list = append(list, *i) })
	return list, err
}

// eachInstance calls f with those of ours with all the tags.
func (p *Provider) eachInstance(ctx context.Context, match map[string]string, f func(*instance, map[string]string)) error {
	return p.everywhere(ctx, "instances", "instances("+instanceFields+")", filter(match), func(s scope) {
		for i := range s.Instances {
			found := &s.Instances[i]
			if !names.IsHashed(found.Name) {
				continue
			}
			if tags := tagsOf(found.Description); tags != nil && provider.HasTags(tags, match) {
				f(found, tags)
			}
		}
	})
}

// orphans returns root disks that no instance uses.
func (p *Provider) orphans(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	var list []provider.Instance
	err := p.everywhere(ctx, "disks", "disks(name,zone,description,creationTimestamp,users)", filter(match), func(s scope) {
		for _, d := range s.Disks {
			if len(d.Users) > 0 || !names.IsHashed(d.Name) {
				continue
			}
			tags := tagsOf(d.Description)
			if tags == nil || !provider.HasTags(tags, match) {
				continue
			}
			at := location{base(d.Zone), d.Name}
			list = append(list, provider.Instance{
				ID: at.String(), Name: d.Name, Key: tags[provider.TagKey], Tags: tags,
				Created: timeOf(d.CreationTimestamp), State: provider.StateDeleting, Zone: at.zone, Region: names.RegionOf(at.zone),
			})
		}
	})
	return list, err
}

// everywhere reads all pages of a list of all zones.
func (p *Provider) everywhere(ctx context.Context, collection, fields, matching string, each func(scope)) error {
	query := url.Values{
		"filter": {matching}, "maxResults": {pageSize}, "returnPartialSuccess": {"true"},
		"fields": {"nextPageToken,unreachables,items/*/" + fields},
	}
	for {
		var page struct {
			Items       map[string]scope `json:"items"`
			Next        string           `json:"nextPageToken"`
			Unreachable []string         `json:"unreachables"`
		}
		if err := p.api.get(ctx, "aggregated/"+collection, query, &page); err != nil {
			return p.ofProject(err)
		}
		if err := p.reached(page.Unreachable); err != nil {
			return err
		}
		for _, s := range page.Items {
			each(s)
		}
		if page.Next == "" {
			return nil
		}
		query.Set("pageToken", page.Next)
	}
}

// reached returns an error if a list lacks one of our zones. Others may be down.
func (p *Provider) reached(missing []string) error {
	for _, scope := range missing {
		if slices.ContainsFunc(p.cfg.Zones, func(zone string) bool {
			return strings.HasSuffix(scope, zone) || strings.HasSuffix(scope, names.RegionOf(zone))
		}) {
			return fmt.Errorf("%w: %s cannot be reached", provider.ErrUnavailable, scope)
		}
	}
	if len(missing) > 0 {
		logger().Warn("a list lacks what is in places that cannot be reached", "places", missing)
	}
	return nil
}
