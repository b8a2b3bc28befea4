// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// Sizes of volumes (CreateVolume, Size): the least of types that have one of more than 1 GiB, and the largest of all.
var leastGiB = map[string]int64{"io1": 4, "io2": 4, "st1": 125, "sc1": 125}

const (
	maxGiB          = 65536
	defaultDiskType = "gp3"
)

func disk(v *volume) *provider.Disk {
	return &provider.Disk{
		ID: v.id, Key: v.keyOf(kindDisk), Bytes: v.bytes, Type: v.kind, Zone: v.zone, FromSnapshot: v.snapshot, FromDisk: v.tags[tagFrom],
		InstanceID: v.instance, Tags: v.tags, Created: v.created,
	}
}

func snapshot(v *volume) *provider.Snapshot {
	return &provider.Snapshot{
		ID: v.id, Key: v.keyOf(kindSnapshot), DiskID: v.disk, Bytes: v.bytes, Ready: v.state == string(types.SnapshotStateCompleted),
		Tags: v.tags, Created: v.created,
	}
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	m, err := p.newMaking(kindDisk, key, cmp.Or(spec.Name, key), spec.Tags)
	if err != nil {
		return nil, err
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := s.oldest(ctx, m)
	if v == nil && err == nil {
		v, err = p.makeDisk(ctx, s, m, spec)
	}
	if err == nil {
		v, err = p.settledDisk(ctx, s, v.id)
	}
	if err != nil {
		return nil, err
	}
	if made = disk(v); !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, zone %s, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, v.id, made.Bytes, made.Type, made.Zone, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// makeDisk makes a disk, maybe of a snapshot or of another disk.
func (p *Provider) makeDisk(ctx context.Context, s *session, m *making, spec provider.DiskSpec) (*volume, error) {
	kind := cmp.Or(spec.Type, defaultDiskType)
	zone, err := p.fill(ctx, s, &spec)
	if err != nil {
		return nil, err
	}
	gib, err := disks.GiB(spec.Bytes, spec.Limit, leastGiB[kind], maxGiB)
	if err != nil {
		return nil, err
	}
	in := &ec2.CreateVolumeInput{AvailabilityZone: &zone, Size: sdk.Int32(int32(gib)), VolumeType: types.VolumeType(kind)}
	if p.cfg.DiskKey != "" {
		in.Encrypted, in.KmsKeyId = sdk.Bool(true), &p.cfg.DiskKey
	}
	if spec.FromSnapshot != "" {
		in.SnapshotId = &spec.FromSnapshot
	}
	if spec.FromDisk != "" {
		m.tags[tagFrom] = spec.FromDisk
	}
	in.TagSpecifications = m.specifications()
	return p.byToken(ctx, s, m, func(token string, options func(*ec2.Options)) (v *volume, err error) {
		in.ClientToken = &token
		v, err = s.createVolume(ctx, in, spec.FromDisk, options)
		what := fmt.Sprintf("type %q, zone %q, %d GiB", kind, zone, gib)
		if isCode(err, "InvalidZone.NotFound") {
			return nil, fmt.Errorf("%w: %s: %w", provider.ErrInvalidArgument, what, err)
		}
		return v, classify(what, err)
	})
}

// createVolume makes a volume, or a copy of one where that is.
func (s *session) createVolume(ctx context.Context, in *ec2.CreateVolumeInput, from string, options func(*ec2.Options)) (*volume, error) {
	if from == "" {
		out, err := s.ec2().CreateVolume(ctx, in, options)
		if err != nil {
			return nil, err
		}
		return &volume{id: sdk.ToString(out.VolumeId), created: sdk.ToTime(out.CreateTime)}, nil
	}
	out, err := s.ec2().CopyVolumes(ctx, &ec2.CopyVolumesInput{
		SourceVolumeId: &from, ClientToken: in.ClientToken, Size: in.Size, VolumeType: in.VolumeType, Encrypted: in.Encrypted, KmsKeyId: in.KmsKeyId, TagSpecifications: in.TagSpecifications,
	}, options)
	switch {
	case err != nil:
		return nil, err
	case len(out.Volumes) != 1:
		return nil, fmt.Errorf("%w: CopyVolumes returned %d volumes", provider.ErrUnknown, len(out.Volumes))
	}
	return volumeOf(&out.Volumes[0]), nil
}

// fill completes the size of a spec and returns the zone. EC2 copies a volume within its zone.
func (p *Provider) fill(ctx context.Context, s *session, spec *provider.DiskSpec) (zone string, err error) {
	var source *volume
	switch zone = spec.Zone; {
	case spec.FromSnapshot != "":
		source, err = s.getVolume(ctx, kindSnapshot, spec.FromSnapshot)
	case spec.FromDisk != "":
		if source, err = s.getVolume(ctx, kindDisk, spec.FromDisk); err == nil && zone != "" && zone != source.zone {
			err = fmt.Errorf("%w: zone %q: disk %s is in zone %s, where EC2 copies it: a snapshot of it can be used in all zones", provider.ErrInvalidArgument, zone, source.id, source.zone)
		}
	}
	switch {
	case err != nil:
		return "", err
	case source != nil && spec.Bytes == 0:
		spec.Bytes = source.bytes
	case source != nil && spec.Bytes < source.bytes:
		return "", fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, source.id, source.bytes)
	}
	if source != nil {
		zone = cmp.Or(zone, source.zone)
	}
	if zone != "" {
		return zone, nil
	}
	return p.defaultZone(ctx, s)
}

// defaultZone returns that of the first subnet.
func (p *Provider) defaultZone(ctx context.Context, s *session) (string, error) {
	t, err := p.template(ctx, s)
	if err != nil {
		return "", err
	}
	pl := &plan{template: t}
	if p.connect(pl, s, false); pl.subnets[0] == "" {
		return "", fmt.Errorf("%w: no zone is asked for, and neither -subnetid (AWS_SUBNET_ID) nor the launch template names a subnet", provider.ErrInvalidArgument)
	}
	out, err := s.ec2().DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: pl.subnets[:1]})
	if err != nil || len(out.Subnets) == 0 {
		return "", cmp.Or(settingError("subnetid", err), fmt.Errorf("%w: subnet %s", provider.ErrNotFound, pl.subnets[0]))
	}
	return sdk.ToString(out.Subnets[0].AvailabilityZone), nil
}

// byToken returns the disk that a token of the key makes, or has made. Of one that was deleted EC2 remembers the token for
// hours: then the next is used. What is not shown although it was made just now may be on its way.
func (p *Provider) byToken(ctx context.Context, s *session, m *making, request func(string, func(*ec2.Options)) (*volume, error)) (*volume, error) {
	for generation := range maxGenerations {
		var repeated retries
		made, err := request(token(m.owner, kindDisk+" "+m.key, generation), repeated.watch)
		limit := p.timing.token
		switch {
		case err == nil:
			limit -= time.Since(made.created)
		case isCode(err, "IdempotentParameterMismatch"): // of a call with another spec or other tags
		case repeated.doubtful && refused(err):
			return nil, fmt.Errorf("%w: a call before that had no reply, and may have made the disk: %v", provider.ErrUnavailable, err)
		default:
			return nil, err
		}
		v, err := p.lookFor(ctx, limit, func() (*volume, error) {
			if made == nil {
				return s.oldest(ctx, m)
			}
			return s.findVolume(ctx, made.id)
		})
		if v != nil || err != nil {
			return v, err
		}
	}
	return nil, fmt.Errorf("%w: key %s was used %d times within a day", provider.ErrInvalidArgument, m.key, maxGenerations)
}

// findVolume returns nil when EC2 shows no such disk.
func (s *session) findVolume(ctx context.Context, id string) (*volume, error) {
	v, err := s.getVolume(ctx, kindDisk, id)
	if errors.Is(err, provider.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// settledDisk returns a disk when EC2 is done with it. One that EC2 could not make it shows as such, or not any more.
func (p *Provider) settledDisk(ctx context.Context, s *session, id string) (v *volume, err error) {
	err = p.pace().Until(ctx, func() (bool, error) {
		v, err = p.lookFor(ctx, p.timing.settle, func() (*volume, error) { return s.findVolume(ctx, id) })
		if err == nil && (v == nil || v.state == stateError) {
			err = fmt.Errorf("%w: EC2 could not make volume %s: if -aws-kms-key-id (AWS_KMS_KEY_ID) is set, it must be a key that these credentials can use", provider.ErrUnavailable, id)
		}
		return err == nil && v.state != string(types.VolumeStateCreating), err
	})
	return v, err
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	v, err := p.get(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return disk(v), nil
}

func (p *Provider) get(ctx context.Context, kind, id string) (*volume, error) {
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.getVolume(ctx, kind, id)
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	found, err := p.volumesBy(ctx, kindDisk, match)
	for _, v := range found {
		list = append(list, *disk(v))
	}
	return list, err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %.100s", diskID)
	return p.removeOwn(ctx, kindDisk, diskID)
}
