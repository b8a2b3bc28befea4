// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/rest"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// volume is a disk or a snapshot as the cloud describes it.
type volume struct {
	id, kind, status, zone string
	// serial, instance and shared are of disks; ready is of snapshots.
	serial, instance string
	shared, ready    bool
	// snapshot and disk are what it is from.
	snapshot, disk string
	bytes          int64
	created        time.Time
	tags           map[string]string
}

// Values of tagVolume: what was made here. A clone is the snapshot by which a disk is copied.
const (
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
	kindClone    = "clone"
)

// Statuses of disks and of snapshots (DescribeDisks, DescribeSnapshots: Status).
const (
	diskAvailable    = "Available"
	diskInUse        = "In_use"
	snapshotFinished = "accomplished"
)

// describedVolume has what is wanted of both replies; see described.
type describedVolume struct {
	DiskID           string `json:"DiskId"`
	SnapshotID       string `json:"SnapshotId"`
	Category         string `json:"Category"`
	Zone             string `json:"ZoneId"`
	Status           string `json:"Status"`
	Serial           string `json:"SerialNumber"`
	Instance         string `json:"InstanceId"`
	MultiAttach      string `json:"MultiAttach"`
	SourceSnapshotID string `json:"SourceSnapshotId"`
	SourceDiskID     string `json:"SourceDiskId"`
	SourceDiskSize   string `json:"SourceDiskSize"`
	Size             int64  `json:"Size"`
	Available        bool   `json:"Available"`
	Created          string `json:"CreationTime"`
	Tags             struct {
		Tag []struct {
			Key   string `json:"TagKey"`
			Value string `json:"TagValue"`
		} `json:"Tag"`
	} `json:"Tags"`
}

func volumeOf(d *describedVolume) *volume {
	v := &volume{
		id: cmp.Or(d.SnapshotID, d.DiskID), kind: d.Category, status: d.Status, zone: d.Zone, serial: d.Serial, instance: d.Instance,
		shared: d.MultiAttach == "Enabled", ready: d.Available || d.Status == snapshotFinished, snapshot: d.SourceSnapshotID, disk: d.SourceDiskID,
		bytes: d.Size << 30, created: timeOf(d.Created), tags: map[string]string{},
	}
	if size, err := strconv.ParseInt(d.SourceDiskSize, 10, 32); err == nil { // of a snapshot
		v.bytes = size << 30
	}
	for _, tag := range d.Tags.Tag {
		v.tags[tag.Key] = tag.Value
	}
	return v
}

// keyOf returns the key of what was made here as such; empty for others'.
func (v *volume) keyOf(kind string) string {
	if v.tags[tagVolume] != kind {
		return ""
	}
	return v.tags[provider.TagKey]
}

var (
	diskID     = regexp.MustCompile(`^d-[0-9a-z]{4,60}$`)
	snapshotID = regexp.MustCompile(`^s-[0-9a-z]{4,60}$`)
)

// describeVolumes returns disks, or snapshots, by an id or by tags.
func (p *Provider) describeVolumes(ctx context.Context, kind, id string, match map[string]string) (list []*volume, err error) {
	var ids, next *string
	if id != "" {
		text, _ := json.Marshal([]string{id}) // a text can be encoded
		ids = new(string(text))
	}
	for {
		var page struct {
			Disks struct {
				Disk []describedVolume `json:"Disk"`
			} `json:"Disks"`
			Snapshots struct {
				Snapshot []describedVolume `json:"Snapshot"`
			} `json:"Snapshots"`
			NextToken string `json:"NextToken"`
		}
		if kind == kindDisk {
			read := func(ctx context.Context, r *ecs.DescribeDisksRequest, o *dara.RuntimeOptions) (*ecs.DescribeDisksResponse, error) {
				return p.api.ecs().DescribeDisksWithContext(rest.Into(ctx, &page), r, o)
			}
			_, err = call(ctx, p.api, "ecs:DescribeDisks", read, &ecs.DescribeDisksRequest{
				RegionId: new(p.cfg.Region), DiskIds: ids, MaxResults: new(int32(100)), NextToken: next,
				Tag: tags.List(match, func(key, value string) *ecs.DescribeDisksRequestTag {
					return &ecs.DescribeDisksRequestTag{Key: new(key), Value: new(value)}
				}),
			})
		} else {
			read := func(ctx context.Context, r *ecs.DescribeSnapshotsRequest, o *dara.RuntimeOptions) (*ecs.DescribeSnapshotsResponse, error) {
				return p.api.ecs().DescribeSnapshotsWithContext(rest.Into(ctx, &page), r, o)
			}
			_, err = call(ctx, p.api, "ecs:DescribeSnapshots", read, &ecs.DescribeSnapshotsRequest{
				RegionId: new(p.cfg.Region), SnapshotIds: ids, MaxResults: new(int32(100)), NextToken: next,
				Tag: tags.List(match, func(key, value string) *ecs.DescribeSnapshotsRequestTag {
					return &ecs.DescribeSnapshotsRequestTag{Key: new(key), Value: new(value)}
				}),
			})
		}
		if err != nil {
			return nil, err
		}
		for _, found := range [][]describedVolume{page.Disks.Disk, page.Snapshots.Snapshot} {
			for i := range found {
				list = append(list, volumeOf(&found[i]))
			}
		}
		if page.NextToken == "" {
			return list, nil
		}
		next = new(page.NextToken)
	}
}

// getVolume returns ErrNotFound when the cloud shows no such disk or snapshot.
func (p *Provider) getVolume(ctx context.Context, kind, id string) (*volume, error) {
	syntax := diskID
	if kind != kindDisk {
		syntax = snapshotID
	}
	if !syntax.MatchString(id) {
		return nil, fmt.Errorf("%w: %.100q is not an id of a %s", provider.ErrNotFound, id, kind)
	}
	list, err := p.describeVolumes(ctx, kind, id, nil)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(v *volume) bool { return v.id == id })
	if i < 0 || kind == kindSnapshot && list[i].tags[tagVolume] == kindClone {
		return nil, fmt.Errorf("%w: %s %s in %s", provider.ErrNotFound, kind, id, p.cfg.Region)
	}
	return list[i], nil
}

// volumesBy returns those that were made here as such and have the tags.
func (p *Provider) volumesBy(ctx context.Context, kind string, match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	match = fitAll(match)
	if len(match) > maxTags {
		return nil, fmt.Errorf("%w: %d tags to match; the cloud allows %d", provider.ErrInvalidArgument, len(match), maxTags)
	}
	list, err := p.describeVolumes(ctx, kind, "", match)
	// The cloud takes an empty value for any value.
	return slices.DeleteFunc(list, func(v *volume) bool { return v.keyOf(kind) == "" || !provider.HasTags(v.tags, match) }), err
}

// making is a disk or a snapshot to be made.
type making struct {
	kind, key string
	// tags are on it, owner those of them by which it is found.
	tags, owner map[string]string
	// request asks for one, with a client token and tags.
	request func(token string, tags map[string]string) (id string, err error)
}

// newMaking returns one without its request.
func (p *Provider) newMaking(kind, key string, given map[string]string) (*making, error) {
	all, err := p.allTags(key, given)
	if err == nil {
		err = checkTags(all, 3) // those of ours
	}
	if err != nil {
		return nil, err
	}
	all[tagVolume] = kind
	m := &making{kind: kind, key: key, tags: all, owner: map[string]string{provider.TagKey: key, tagVolume: kind}}
	if cluster, ok := all[provider.TagCluster]; ok {
		m.owner[provider.TagCluster] = cluster
	}
	return m, nil
}

func (m *making) token(generation int) string {
	return clientToken(m.kind, m.owner[provider.TagCluster], m.key, strconv.Itoa(generation))
}

// findOrMakeVolume returns the disk or snapshot of a key. As with instances no two calls have the same parameters, so
// that of several with one client token one makes something, and the others look for that.
func (p *Provider) findOrMakeVolume(ctx context.Context, m *making) (*volume, error) {
	v, err := p.oldestVolume(ctx, m)
	if v != nil || err != nil {
		return v, err
	}
	for generation := p.memory.spent.get(m.token(0)); generation < maxGenerations; generation++ {
		all := tags.Merge(m.tags, map[string]string{tagAttempt: rand.Text()})
		id, err := m.request(m.token(generation), all)
		if err != nil && !failure.HasCode(err, codeMismatch) {
			return nil, err
		}
		seen, err := p.look(ctx, time.Now().Add(p.pace.visible), func() (bool, error) {
			v, err = p.oldestVolume(ctx, m)
			return v != nil, err
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("wait for the %s of key %s to appear: %w", m.kind, m.key, err)
		case seen && id != "" && v.id != id: // the cloud has forgotten the client token of an older one
			return v, p.removeVolume(ctx, m.kind, id)
		case seen:
			return v, nil
		case id != "":
			return nil, fmt.Errorf("%w: %s %s was made and does not appear", provider.ErrUnavailable, m.kind, id)
		}
		p.memory.spent.put(m.token(0), generation+1) // what was made with it is gone
	}
	return nil, fmt.Errorf("%w: key %s was made and deleted %d times; use another", provider.ErrAlreadyExists, m.key, maxGenerations)
}

// oldestVolume returns nil when none is shown.
func (p *Provider) oldestVolume(ctx context.Context, m *making) (*volume, error) {
	list, err := p.describeVolumes(ctx, m.kind, "", m.owner)
	list = slices.DeleteFunc(list, func(v *volume) bool { return v.keyOf(m.kind) != m.key || !provider.HasTags(v.tags, m.owner) })
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return slices.MinFunc(list, func(a, b *volume) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id)) }), nil
}

// removeVolume returns when a disk is not shown any more, and when the cloud has accepted to remove a snapshot: that is not shown
// then (DeleteSnapshot).
func (p *Provider) removeVolume(ctx context.Context, kind, id string) error {
	err := p.settled(ctx, func() error {
		if kind != kindDisk {
			// Disks that were made of it stay.
			_, err := call(ctx, p.api, "ecs:DeleteSnapshot", p.api.ecs().DeleteSnapshotWithContext, &ecs.DeleteSnapshotRequest{SnapshotId: new(id), Force: new(true)})
			return err
		}
		_, err := call(ctx, p.api, "ecs:DeleteDisk", p.api.ecs().DeleteDiskWithContext, &ecs.DeleteDiskRequest{DiskId: new(id)})
		if busy(err) {
			if v, getErr := p.getVolume(ctx, kindDisk, id); getErr == nil && v.instance != "" {
				return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance)
			}
		}
		return err
	})
	if err != nil && !failure.HasCode(err, codeNoDisk, codeNoSnapshot) {
		return err
	}
	for t := p.pace.ticker(); ; {
		switch list, err := p.describeVolumes(ctx, kind, id, nil); {
		case err != nil:
			return err
		case len(list) == 0:
			return nil
		}
		if err := t.Wait(ctx); err != nil {
			return failure.Classify(err)
		}
	}
}
