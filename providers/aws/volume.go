// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
)

// volume is an EBS volume or a snapshot as EC2 describes it.
type volume struct {
	id, kind, zone, state string
	// instance and attachment are who has a volume, and how far that is.
	instance   string
	attachment types.VolumeAttachmentState
	shared     bool
	// snapshot and disk are what it is from.
	snapshot, disk string
	bytes          int64
	created        time.Time
	tags           map[string]string
}

// Tags of disks and snapshots: what was made as such, and the disk that a disk is a copy of. Volumes of
// instances have the tags of their instance.
const (
	tagVolume = "outrigger-volume"
	tagFrom   = "outrigger-from"
)

// Values of tagVolume.
const (
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
)

const (
	notFoundVolume   = "InvalidVolume.NotFound"
	notFoundSnapshot = "InvalidSnapshot.NotFound"
)

func volumeOf(d *types.Volume) *volume {
	v := &volume{
		id: sdk.ToString(d.VolumeId), kind: string(d.VolumeType), zone: sdk.ToString(d.AvailabilityZone), state: string(d.State),
		shared: sdk.ToBool(d.MultiAttachEnabled), snapshot: sdk.ToString(d.SnapshotId), bytes: int64(sdk.ToInt32(d.Size)) << 30,
		created: sdk.ToTime(d.CreateTime), tags: tagsOf(d.Tags),
	}
	for _, a := range d.Attachments {
		if a.State != types.VolumeAttachmentStateDetached {
			v.instance, v.attachment = cmp.Or(sdk.ToString(a.InstanceId), sdk.ToString(a.AssociatedResource)), a.State
		}
	}
	return v
}

func snapshotOf(d *types.Snapshot) *volume {
	return &volume{
		id: sdk.ToString(d.SnapshotId), state: string(d.State), disk: sdk.ToString(d.VolumeId), bytes: int64(sdk.ToInt32(d.VolumeSize)) << 30,
		created: sdk.ToTime(d.StartTime), tags: tagsOf(d.Tags),
	}
}

// keyOf returns the key of what was made here as such; empty for others'.
func (v *volume) keyOf(kind string) string {
	if v.tags[tagVolume] != kind {
		return ""
	}
	return v.tags[provider.TagKey]
}

// gone reports whether EC2 removes it or has removed it.
func (v *volume) gone() bool {
	return v.state == string(types.VolumeStateDeleting) || v.state == string(types.VolumeStateDeleted)
}

// stored returns disks, or snapshots, by an id or by tags. EC2 takes no size of pages with ids.
func (s *session) stored(ctx context.Context, kind, id string, filters []types.Filter) (list []*volume, err error) {
	size, ids, next := sdk.Int32(500), []string(nil), (*string)(nil)
	if id != "" {
		size, ids = nil, []string{id}
	}
	for more := true; more; more = sdk.ToString(next) != "" {
		if kind == kindSnapshot {
			page, err := s.ec2().DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: ids, OwnerIds: []string{"self"}, Filters: filters, MaxResults: size, NextToken: next})
			if err != nil {
				return nil, unless(err, notFoundSnapshot)
			}
			next = page.NextToken
			for i := range page.Snapshots {
				list = append(list, snapshotOf(&page.Snapshots[i]))
			}
			continue
		}
		page, err := s.ec2().DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: ids, Filters: filters, MaxResults: size, NextToken: next})
		if err != nil {
			return nil, unless(err, notFoundVolume)
		}
		next = page.NextToken
		for i := range page.Volumes {
			list = append(list, volumeOf(&page.Volumes[i]))
		}
	}
	return list, nil
}

// getVolume returns ErrNotFound when EC2 shows no such disk or snapshot.
func (s *session) getVolume(ctx context.Context, kind, id string) (*volume, error) {
	syntax := volumeSyntax
	if kind == kindSnapshot {
		syntax = snapshotSyntax
	}
	if !syntax.MatchString(id) {
		return nil, fmt.Errorf("%w: %.100q is not an id of a %s", provider.ErrNotFound, id, kind)
	}
	list, err := s.stored(ctx, kind, id, nil)
	if err == nil && (len(list) == 0 || list[0].gone()) {
		err = fmt.Errorf("%w: %s %s in %s", provider.ErrNotFound, kind, id, s.region)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// volumesBy returns those that were made here as such and have the tags.
func (p *Provider) volumesBy(ctx context.Context, kind string, match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.stored(ctx, kind, "", append(tagFilters(match), filter("tag:"+tagVolume, kind)))
	return slices.DeleteFunc(list, func(v *volume) bool { return v.gone() || v.keyOf(kind) == "" || !provider.HasTags(v.tags, match) }), err
}

// making is a disk or a snapshot to be made.
type making struct {
	kind, key string
	// tags are on it, owner those of them by which it is found.
	tags, owner map[string]string
}

func (p *Provider) newMaking(kind, key, name string, given map[string]string) (*making, error) {
	runes := []rune(name)
	pl := &plan{key: key, name: string(runes[:min(len(runes), maxTagValue)])}
	if err := pl.label(p.cfg.Tags, given); err != nil {
		return nil, err
	}
	pl.tags[tagVolume] = kind
	m := &making{kind, key, pl.tags, map[string]string{provider.TagKey: key, tagVolume: kind}}
	if cluster, ok := pl.tags[provider.TagCluster]; ok {
		m.owner[provider.TagCluster] = cluster
	}
	return m, nil
}

func (m *making) specifications() []types.TagSpecification {
	kind := types.ResourceTypeVolume
	if m.kind == kindSnapshot {
		kind = types.ResourceTypeSnapshot
	}
	return []types.TagSpecification{{ResourceType: kind, Tags: tagList(m.tags)}}
}

// oldest returns the disk or snapshot of a key, nil when none is shown. What EC2 could not make is removed.
func (s *session) oldest(ctx context.Context, m *making) (*volume, error) {
	list, err := s.stored(ctx, m.kind, "", tagFilters(m.owner))
	list = slices.DeleteFunc(list, func(v *volume) bool {
		return v.gone() || v.keyOf(m.kind) != m.key || !provider.HasTags(v.tags, m.owner)
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	v := slices.MinFunc(list, byAge)
	if v.state == stateError {
		return nil, s.remove(ctx, m.kind, v.id)
	}
	return v, nil
}

func byAge(a, b *volume) int { return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id)) }

// lookFor is look for a disk or a snapshot; nil if it is not seen.
func (p *Provider) lookFor(ctx context.Context, limit time.Duration, ask func() (*volume, error)) (v *volume, err error) {
	_, err = p.look(ctx, limit, func() (_ bool, err error) {
		v, err = ask()
		return v != nil, err
	})
	return v, err
}

// stateError is that of both volumes and snapshots.
const stateError = "error"

// remove accepts that there is none.
func (s *session) remove(ctx context.Context, kind, id string) error {
	if kind == kindSnapshot {
		_, err := s.ec2().DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
		return unless(err, notFoundSnapshot)
	}
	_, err := s.ec2().DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	return unless(err, notFoundVolume)
}

// removeOwn removes a disk or snapshot that was made here.
func (p *Provider) removeOwn(ctx context.Context, kind, id string) error {
	return p.patiently(ctx, func(ctx context.Context, s *session) (bool, error) {
		v, err := s.getVolume(ctx, kind, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case v.keyOf(kind) == "":
			return false, fmt.Errorf("%w: it was not made here", provider.ErrPermissionDenied)
		case v.instance != "":
			return false, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance)
		}
		err = s.remove(ctx, kind, id)
		return err == nil, err
	})
}

// patiently asks until it is done. While something is in no state for it, it asks again, and says so if ctx
// ends. Who has a volume that is in use, the next look tells.
func (p *Provider) patiently(ctx context.Context, ask func(context.Context, *session) (bool, error)) error {
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	var busy error
	err = p.pace().Until(ctx, func() (bool, error) {
		done, err := ask(ctx, s)
		if isCode(err, "IncorrectState", "IncorrectInstanceState", "IncorrectModificationState", "VolumeInUse", "InvalidAttachment.NotFound") {
			busy, err = err, nil
		}
		return done, err
	})
	if err != nil && ctx.Err() != nil && busy != nil {
		return fmt.Errorf("%w: %v", err, busy)
	}
	return err
}
