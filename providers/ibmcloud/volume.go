// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// tagVolume is on what was made as a disk or a snapshot: boot volumes have the tags of their instance. The others are on
// disks, and say what they are a copy of, also when that does not exist any more.
const (
	tagVolume       = "outrigger-volume"
	tagFromDisk     = "outrigger-from-disk"
	tagFromSnapshot = "outrigger-from-snapshot"
)

// Values of tagVolume. A clone is the snapshot by which a disk is copied.
const (
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
	kindClone    = "clone"
)

// Statuses of volumes and lifecycle states of snapshots (constants of Volume.Status and Snapshot.LifecycleState).
const (
	statusAvailable = vpcv1.VolumeStatusAvailableConst
	statusFailed    = vpcv1.VolumeStatusFailedConst
	stateStable     = vpcv1.SnapshotLifecycleStateStableConst
)

// making is a disk or a snapshot to be made. The cloud takes its name once in a region.
type making struct {
	kind, key, name string
	userTags        []string
}

func (p *Provider) newMaking(kind, key string, given, from map[string]string) (*making, error) {
	list, err := userTags(tags.Merge(p.cfg.Tags, given, from, map[string]string{provider.TagKey: key, tagVolume: kind}))
	return &making{kind, key, volumeName(kind, given[provider.TagCluster], key), list}, err
}

func volumeName(kind, cluster, key string) string {
	sum := sha256.Sum256([]byte(kind + "/" + cluster + "/" + key))
	return "outrigger-" + kind + "-" + hex.EncodeToString(sum[:16])
}

// keyOf returns the key of what was made here as such; empty for others'.
func keyOf(kind string, tags map[string]string) string {
	if tags[tagVolume] != kind {
		return ""
	}
	return tags[provider.TagKey]
}

// isBoot reports whether a volume with tags of ours is an instance's.
func isBoot(v *vpcv1.Volume) bool {
	return !slices.ContainsFunc(v.UserTags, func(tag string) bool { return strings.HasPrefix(tag, tagVolume+":") })
}

// shown returns the tags without those that only this package needs.
func shown(tags map[string]string) map[string]string {
	rest := maps.Clone(tags)
	for _, name := range []string{tagVolume, tagFromDisk, tagFromSnapshot} {
		delete(rest, name)
	}
	return rest
}

// absentAs returns ErrNotFound for what the cloud does not have.
func (p *Provider) absentAs(kind, id string, err error) error {
	if err == nil || failure.HasStatus(err, http.StatusNotFound) {
		return fmt.Errorf("%w: no %s %.100q in region %s", provider.ErrNotFound, kind, id, p.cfg.region())
	}
	return err
}

func (p *Provider) getVolume(ctx context.Context, id string) (*vpcv1.Volume, error) {
	if !identifier.MatchString(id) {
		return nil, p.absentAs(kindDisk, id, nil)
	}
	v, err := ask(ctx, p.api.GetVolumeWithContext, vpcv1.GetVolumeOptions{ID: &id})
	if err != nil {
		return nil, p.absentAs(kindDisk, id, err)
	}
	return v, nil
}

func (p *Provider) getSnapshot(ctx context.Context, id string) (*vpcv1.Snapshot, error) {
	if !identifier.MatchString(id) {
		return nil, p.absentAs(kindSnapshot, id, nil)
	}
	s, err := ask(ctx, p.api.GetSnapshotWithContext, vpcv1.GetSnapshotOptions{ID: &id})
	if err != nil {
		return nil, p.absentAs(kindSnapshot, id, err)
	}
	return s, nil
}

// volumeNamed returns nil when the cloud shows none.
func (p *Provider) volumeNamed(ctx context.Context, name string) (*vpcv1.Volume, error) {
	page, err := ask(ctx, p.api.ListVolumesWithContext, vpcv1.ListVolumesOptions{Name: &name})
	if err != nil || len(page.Volumes) == 0 {
		return nil, err
	}
	return &page.Volumes[0], nil
}

// snapshotNamed returns nil when the cloud shows none.
func (p *Provider) snapshotNamed(ctx context.Context, name string) (*vpcv1.Snapshot, error) {
	page, err := ask(ctx, p.api.ListSnapshotsWithContext, vpcv1.ListSnapshotsOptions{Name: &name})
	if err != nil || len(page.Snapshots) == 0 {
		return nil, err
	}
	return &page.Snapshots[0], nil
}

// listed calls each with the tags of every disk, or snapshot, that was made here and has those of match.
func listed[P next, V any](match map[string]string, kind string, read func(tag string, start *string) (P, error), items func(P) []V, tagged func(*V) []string, each func(*V)) error {
	if len(match) == 0 {
		return fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	tag, err := narrowest(match)
	if err != nil {
		return nil // nothing can have such a tag
	}
	return pages(func(start *string) (P, error) {
		page, err := read(tag, start)
		if err != nil {
			return page, err
		}
		list := items(page)
		for i := range list {
			if tags := tagsOf(tagged(&list[i])); keyOf(kind, tags) != "" && provider.HasTags(tags, match) {
				each(&list[i])
			}
		}
		return page, nil
	})
}

// asleep is an error for what the cloud does not do with a volume of the first storage generation unless an instance that runs
// has it (pages "Expanding Block Storage for VPC volume capacity", "About Block Storage snapshots").
func asleep(v *vpcv1.Volume, what string) error {
	if value(v.StorageGeneration) != 1 || value(v.Active) {
		return nil
	}
	return fmt.Errorf("%w: a volume of profile %s can be %s only while an instance that runs has it: attach it, or use disks of type %s",
		provider.ErrUnavailable, profileOf(v), what, secondGeneration)
}

func profileOf(v *vpcv1.Volume) string {
	if v.Profile == nil {
		return ""
	}
	return value(v.Profile.Name)
}

func zoneOf(zone *vpcv1.ZoneReference) string {
	if zone == nil {
		return ""
	}
	return value(zone.Name)
}

// busy reports whether the cloud does something else with a volume or an instance, after which it does this.
func busy(err error) bool { return failure.HasStatus(err, http.StatusConflict) }
