// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// CreateDisk implements provider.DiskController. The name of a key is the same in all zones, in any of which an
// earlier call may have made the disk.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	name := diskPrefix + volumeHash(spec.Tags[provider.TagCluster], key)
	unlock, err := p.locks.Take(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	at, body, err := p.planDisk(ctx, name, key, spec)
	if err != nil {
		return nil, err
	}
	v := body
	if body.ID == "" {
		if v, err = p.makeVolume(ctx, making{at: at, create: "zones/" + at.zone + "/disks", read: diskPath(at), body: body}); err != nil {
			return nil, about(err, body)
		}
	}
	if made = v.disk(); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, made.ID, made.Bytes, made.Type, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// planDisk returns the disk of the name, or the body of the request that makes it.
func (p *Provider) planDisk(ctx context.Context, name, key string, spec provider.DiskSpec) (at location, body *volume, err error) {
	err = p.everywhere(ctx, "disks", "disks("+diskFields+")", "(name = "+name+")", func(s scope) {
		for i := range s.Disks {
			if s.Disks[i].Status == "READY" { // others are waited for, or made again
				body = &s.Disks[i]
			}
			at = s.Disks[i].location()
		}
	})
	if err != nil || body != nil {
		return at, body, err
	}
	if at.zone != "" {
		spec.Zone = at.zone
	}
	return p.diskBody(ctx, name, key, spec)
}

// diskBody completes what the spec leaves open: it is the source's, or the configured one.
func (p *Provider) diskBody(ctx context.Context, name, key string, spec provider.DiskSpec) (at location, body *volume, err error) {
	body, err = p.newVolume(name, key, spec.Tags)
	if err != nil {
		return at, nil, err
	}
	source := &volume{}
	switch {
	case spec.FromDisk != "":
		source, err = p.getDisk(ctx, spec.FromDisk)
		spec.Zone, spec.Type = cmp.Or(spec.Zone, base(source.Zone)), cmp.Or(spec.Type, base(source.Type))
		body.SourceDisk = diskPath(source.location())
	case spec.FromSnapshot != "":
		source, err = p.getSnapshot(ctx, spec.FromSnapshot)
		body.SourceSnapshot = snapshotPath(source.Name)
	}
	if err != nil {
		return at, nil, err
	}
	spec.Bytes = cmp.Or(spec.Bytes, source.bytes())
	switch least := source.bytes(); {
	case spec.Bytes < least:
		return at, nil, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, source.Name, least)
	case spec.FromDisk != "" && spec.Zone != base(source.Zone):
		return at, nil, fmt.Errorf("%w: zone %.40q for a copy of disk %s, which is made in that disk's zone: take a snapshot of it first", provider.ErrInvalidArgument, spec.Zone, spec.FromDisk)
	}
	at = location{cmp.Or(spec.Zone, p.cfg.Zones[0]), name}
	kind := cmp.Or(spec.Type, p.cfg.DiskType)
	body.SizeGB, err = p.sizeOf(ctx, at.zone, kind, spec)
	body.Type = "zones/" + at.zone + "/diskTypes/" + kind
	if p.cfg.DiskKey != "" {
		body.Key = &diskKey{p.cfg.DiskKey}
	}
	return at, body, err
}

// sizeOf returns how many GiB the disk has: each type of disks says how many there can be.
func (p *Provider) sizeOf(ctx context.Context, zone, kind string, spec provider.DiskSpec) (int64, error) {
	if !zoneName.MatchString(zone) || !resourceName.MatchString(kind) {
		return 0, fmt.Errorf("%w: no disks of type %.63q in zone %.63q", provider.ErrInvalidArgument, kind, zone)
	}
	var reply struct {
		Sizes string `json:"validDiskSize"` // such as 10GB-65536GB, where a GB has 2^30 bytes
	}
	err := p.api.get(ctx, "zones/"+zone+"/diskTypes/"+kind, url.Values{"fields": {"validDiskSize"}}, &reply)
	if failure.HasStatus(err, http.StatusNotFound, http.StatusBadRequest) {
		return 0, fmt.Errorf("%w: no disks of type %s in zone %s: %v", provider.ErrInvalidArgument, kind, zone, err) //nolint:errorlint // its class is not this one's
	}
	if err != nil {
		return 0, err
	}
	least, most := int64(1), int64(maxGiB)
	_, _ = fmt.Sscanf(reply.Sizes, "%dGB-%dGB", &least, &most) // else the cloud judges
	return disks.GiB(spec.Bytes, spec.Limit, least, most)
}

// maxGiB is the size of the largest disks ("About Persistent Disk", cloud.google.com).
const maxGiB = 64 << 10

// about adds to a refusal what it may be about.
func about(err error, body *volume) error {
	if body.SizeGB == 0 || !errors.Is(err, provider.ErrInvalidArgument) {
		return err
	}
	return fmt.Errorf("type %s, %d GiB: %w", base(body.Type), body.SizeGB, err)
}

// newVolume returns what disks and snapshots have in common.
func (p *Provider) newVolume(name, key string, owner map[string]string) (*volume, error) {
	all := tags.Merge(owner, map[string]string{provider.TagKey: key})
	description, err := describe(all)
	if err != nil {
		return nil, err
	}
	labels := tags.Merge(labelsOf(all), p.cfg.Labels)
	if len(labels) > maxLabels {
		return nil, fmt.Errorf("%w: %d labels: Compute Engine takes %d", provider.ErrInvalidArgument, len(labels), maxLabels)
	}
	return &volume{Name: name, Description: description, Labels: labels}, nil
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk %s", diskID)
	v, err := p.getDisk(ctx, diskID)
	if err != nil {
		return nil, err
	}
	return v.disk(), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	if len(match) == 0 {
		return nil, errNoMatch
	}
	err = p.everywhere(ctx, "disks", "disks("+diskFields+")", filter(match), func(s scope) {
		for i := range s.Disks {
			if d := s.Disks[i].disk(); d.Key != "" && provider.HasTags(d.Tags, match) {
				list = append(list, *d)
			}
		}
	})
	return list, err
}

var errNoMatch = fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", diskID)
	return p.deleteVolume(ctx, func() (*volume, string, error) {
		v, err := p.getDisk(ctx, diskID)
		return v, "zones/" + base(v.Zone) + "/disks/", err
	})
}

// CreateSnapshot implements provider.DiskSnapshotter.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, owner map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	name := snapshotPrefix + volumeHash(owner[provider.TagCluster], key)
	unlock, err := p.locks.Take(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := p.getSnapshot(ctx, name)
	if errors.Is(err, provider.ErrNotFound) || err == nil && !v.ready() {
		v, err = p.takeSnapshot(ctx, name, key, diskID, owner)
	}
	if err != nil {
		return nil, err
	}
	if made = v.snapshot(); made.DiskID != diskID {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, v.Name, made.DiskID)
	}
	return made, nil
}

func (p *Provider) takeSnapshot(ctx context.Context, name, key, diskID string, owner map[string]string) (*volume, error) {
	source, err := p.getDisk(ctx, diskID)
	if err != nil {
		return nil, err
	}
	body, err := p.newVolume(name, key, owner)
	if err != nil {
		return nil, err
	}
	at := source.location()
	return p.makeVolume(ctx, making{at: location{at.zone, name}, create: diskPath(at) + "/createSnapshot", read: snapshotPath(name), body: body})
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot %s", snapshotID)
	v, err := p.getSnapshot(ctx, snapshotID)
	if err != nil {
		return nil, err
	}
	return v.snapshot(), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	if len(match) == 0 {
		return nil, errNoMatch
	}
	query := url.Values{"filter": {filter(match)}, "maxResults": {pageSize}, "fields": {"nextPageToken,items(" + snapshotFields + ")"}}
	for {
		var page struct {
			Items []volume `json:"items"`
			Next  string   `json:"nextPageToken"`
		}
		if err := p.api.get(ctx, "global/snapshots", query, &page); err != nil {
			return nil, p.ofProject(err)
		}
		for i := range page.Items {
			if s := page.Items[i].snapshot(); s.Key != "" && provider.HasTags(s.Tags, match) {
				list = append(list, *s)
			}
		}
		if page.Next == "" {
			return list, nil
		}
		query.Set("pageToken", page.Next)
	}
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", snapshotID)
	return p.deleteVolume(ctx, func() (*volume, string, error) {
		v, err := p.getSnapshot(ctx, snapshotID)
		return v, "global/snapshots/", err
	})
}
