// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/IBM/vpc-go-sdk/vpcv1"
	"github.com/go-openapi/strfmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/rest"
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
	statusAvailable = "available"
	statusStable    = "stable"
	statusFailed    = "failed" // it could not be made
	statusUnusable  = "unusable"
)

// volume is a volume or a snapshot, with the members that are wanted; see listPage.
type volume struct {
	reference
	Status  string `json:"status"`          // of a volume
	State   string `json:"lifecycle_state"` // of a snapshot
	Reasons []struct {
		Code    *string `json:"code"`
		Message *string `json:"message"`
	} `json:"status_reasons"`
	Capacity   int64            `json:"capacity"`         // of a volume
	Least      int64            `json:"minimum_capacity"` // of a snapshot's volumes
	Profile    reference        `json:"profile"`
	Zone       reference        `json:"zone"`
	Generation int64            `json:"storage_generation"`
	Active     bool             `json:"active"`
	Busy       bool             `json:"busy"`
	Source     reference        `json:"source_volume"`
	CreatedAt  *strfmt.DateTime `json:"created_at"`
	CapturedAt *strfmt.DateTime `json:"captured_at"`
	UserTags   []string         `json:"user_tags"`
	At         []struct {
		ID       string    `json:"id"`
		Auto     bool      `json:"delete_volume_on_instance_delete"`
		Instance reference `json:"instance"`
	} `json:"volume_attachments"`
}

func (v *volume) status() string { return cmp.Or(v.Status, v.State) }

// bytes returns its size: capacities are in GiB (page "FAQs for Block Storage for VPC").
func (v *volume) bytes() int64 { return max(v.Capacity, v.Least) << 30 }

// keyOf returns the key of what was made here as such; empty for others'.
func keyOf(kind string, tags map[string]string) string {
	if tags[tagVolume] != kind {
		return ""
	}
	return tags[provider.TagKey]
}

// instance returns the one that has a volume; empty when none has.
func (v *volume) instance() string {
	if len(v.At) == 0 {
		return ""
	}
	return v.At[0].Instance.ID
}

// trouble returns why nobody can use it; nil if that is not so.
func (v *volume) trouble() error {
	if v.status() != statusFailed && v.status() != statusUnusable {
		return nil
	}
	if len(v.Reasons) == 0 {
		return fmt.Errorf("%w: %s is %s", provider.ErrUnknown, v.ID, v.status())
	}
	return fmt.Errorf("%s is %s: %w", v.ID, v.status(), failed(v.Reasons[0].Code, v.Reasons[0].Message, reasons))
}

// asleep is an error for what the cloud does not do with a volume of the first storage generation unless an instance that runs
// has it (pages "Expanding Block Storage for VPC volume capacity", "About Block Storage snapshots").
func (v *volume) asleep(what string) error {
	if v.Generation != 1 || v.Active {
		return nil
	}
	return fmt.Errorf("%w: a volume of profile %s can be %s only while an instance that runs has it: attach it, or use disks of type %s",
		provider.ErrUnavailable, v.Profile.Name, what, secondGeneration)
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

// busy reports whether the cloud does something else with a volume or an instance, after which it does this.
func busy(err error) bool { return failure.HasStatus(err, http.StatusConflict) }

// look returns ErrNotFound for what the cloud does not have.
func (p *Provider) look(ctx context.Context, kind, id string) (*volume, error) {
	v := new(volume)
	var err error
	switch {
	case !identifier.MatchString(id):
		err = provider.ErrNotFound
	case kind == kindDisk:
		_, err = ask(rest.Into(ctx, v), p.api.GetVolumeWithContext, vpcv1.GetVolumeOptions{ID: &id})
	default:
		_, err = ask(rest.Into(ctx, v), p.api.GetSnapshotWithContext, vpcv1.GetSnapshotOptions{ID: &id})
	}
	if errors.Is(err, provider.ErrNotFound) {
		err = fmt.Errorf("%w: no %s %.100q in region %s", provider.ErrNotFound, kind, id, p.cfg.region())
	}
	return v, err
}

// volumeNamed returns nil when the cloud shows nothing of that name.
func (p *Provider) volumeNamed(ctx context.Context, kind, name string) (*volume, error) {
	list, err := p.search(ctx, kind, &name, nil)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func (p *Provider) search(ctx context.Context, kind string, name, tag *string) (list []volume, err error) {
	type page struct {
		nextPage
		Volumes   []volume `json:"volumes"`
		Snapshots []volume `json:"snapshots"`
	}
	err = pages(func(start *string) (*page, error) {
		got := new(page)
		if kind == kindDisk {
			_, err = ask(rest.Into(ctx, got), p.api.ListVolumesWithContext, vpcv1.ListVolumesOptions{Name: name, Tag: tag, Limit: new(pageSize), Start: start})
		} else {
			_, err = ask(rest.Into(ctx, got), p.api.ListSnapshotsWithContext, vpcv1.ListSnapshotsOptions{Name: name, Tag: tag, Limit: new(pageSize), Start: start})
		}
		list = append(append(list, got.Volumes...), got.Snapshots...)
		return got, err
	})
	return list, err
}

// tagged returns those that were made here as such and have the tags.
func (p *Provider) tagged(ctx context.Context, kind string, match map[string]string) ([]volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	tag, err := narrowest(match)
	if err != nil {
		return nil, nil // nothing can have such a tag
	}
	list, err := p.search(ctx, kind, nil, &tag)
	return slices.DeleteFunc(list, func(v volume) bool {
		tags := tagsOf(v.UserTags)
		return keyOf(kind, tags) == "" || !provider.HasTags(tags, match)
	}), err
}

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

// findOrMakeVolume returns the disk that has the name, or the snapshot when the cloud has read all that is in it. make asks for
// one. What could not be made is deleted: it has never held anything (page "Monitoring Block Storage volumes").
func (p *Provider) findOrMakeVolume(ctx context.Context, m *making, make func() error) (v *volume, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err = p.volumeNamed(ctx, m.kind, m.name)
		if v == nil && err == nil {
			if err = make(); isTaken(err) || busy(err) || errors.Is(err, errCopied) {
				err = nil
			}
		}
		switch {
		case v == nil || err != nil:
			return false, err
		case v.status() == statusFailed:
			return false, errors.Join(v.trouble(), p.remove(ctx, m.kind, v.ID))
		}
		return v.status() == statusAvailable || v.status() == statusStable || v.CapturedAt != nil && v.status() == "pending", v.trouble()
	})
	return v, err
}

// settled returns a disk or a snapshot when the cloud is done with it.
func (p *Provider) settled(ctx context.Context, kind, id string) (v *volume, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		if v, err = p.look(ctx, kind, id); err == nil {
			err = v.trouble()
		}
		return v.status() == statusAvailable || v.status() == statusStable, err
	})
	return v, err
}

// remove returns when it does not exist. It waits while the cloud takes a snapshot of a disk. A snapshot of which the cloud
// still fills a disk is busy.
func (p *Provider) remove(ctx context.Context, kind, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		v, err := p.look(ctx, kind, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case v.instance() != "":
			return false, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance())
		case v.status() == "pending_deletion", v.status() == "deleting":
			return false, nil
		case kind == kindDisk:
			err = order(ctx, p.api.DeleteVolumeWithContext, vpcv1.DeleteVolumeOptions{ID: &id})
		default:
			err = order(ctx, p.api.DeleteSnapshotWithContext, vpcv1.DeleteSnapshotOptions{ID: &id})
		}
		if errors.Is(err, provider.ErrNotFound) || kind == kindDisk && busy(err) {
			err = nil
		}
		return false, err
	})
}
