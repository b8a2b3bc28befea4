// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// CreateDisk implements provider.DiskController. Who makes the disk of a key again sends the same
// PUT, so that nothing has to be undone when a call ends before Azure has made it.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if spec.FromDisk != "" {
		spec.FromDisk, err = p.parseVolume(kindDisk, spec.FromDisk)
	} else if spec.FromSnapshot != "" {
		spec.FromSnapshot, err = p.parseVolume(kindSnapshot, spec.FromSnapshot)
	}
	if err != nil {
		return nil, err
	}
	spec.Zone = p.zoneOfLabel(spec.Zone)
	v, err := p.makeVolume(ctx, kindDisk, key, spec)
	if err != nil {
		return nil, err
	}
	made = p.disk(v)
	if strings.EqualFold(spec.Type, made.Type) {
		spec.Type = made.Type
	}
	if !spec.Fits(made) {
		return nil, fmt.Errorf("%w: disk %s of the same key has %d bytes, type %s, zone %q, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, v.Name, made.Bytes, made.Type, made.Zone, made.FromDisk, made.FromSnapshot)
	}
	return made, nil
}

// makeVolume returns the disk or snapshot of a key, which it makes if there is none.
func (p *Provider) makeVolume(ctx context.Context, k volumeKind, key string, spec provider.DiskSpec) (v *volume, err error) {
	tags, err := p.tagsOf(key, shortName(cmp.Or(spec.Name, key)), spec.Tags)
	if err != nil {
		return nil, err
	}
	id := p.volumeID(k, p.cfg.ResourceGroup, k.name(tags[provider.TagCluster], key))
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = p.tempo.ask.Until(ctx, func() (bool, error) {
		v, err = p.getVolume(ctx, id)
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && v.Properties.ProvisioningState == provisioningFailed:
			// One that has failed is not deleted: it may be a change of its size that failed.
			return false, p.putVolume(ctx, k, id, tags, spec)
		case err != nil:
			return false, err
		}
		return v.Properties.ProvisioningState == provisioningSucceeded, nil
	})
	return v, err
}

// shortName returns as much of a name as a tag has room for, whatever the alphabet.
func shortName(name string) string {
	runes := []rune(name)
	return string(runes[:min(len(runes), maxTagValue/4)])
}

// putVolume asks for a disk or snapshot that is not there, and waits. As with VMs it goes on for a moment
// when ctx ends: a PUT that comes late would make again what was deleted meanwhile.
func (p *Provider) putVolume(ctx context.Context, k volumeKind, id string, tags map[string]string, spec provider.DiskSpec) error {
	body := &volume{Location: p.cfg.Region, Tags: tags}
	body.Properties.CreationData = &creationData{CreateOption: "Empty"}
	if source := cmp.Or(spec.FromDisk, spec.FromSnapshot); source != "" {
		body.Properties.CreationData = &creationData{CreateOption: "Copy", SourceResourceID: source}
	}
	if k == kindDisk {
		if err := p.fill(ctx, body, spec); err != nil {
			return err
		}
	} else {
		body.Properties.Incremental = true // it holds what is new, and is complete whatever becomes of others
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	late, stop := outlive(ctx, p.tempo.grace)
	defer stop()
	err := p.change(late, http.MethodPut, id, body)
	if busy(err) || err == nil {
		return nil
	}
	if err = classify(err); errors.Is(err, provider.ErrInvalidArgument) && k == kindDisk {
		err = fmt.Errorf("type %q, zone %q, %d GiB: %w", body.SKU.Name, strings.Join(body.Zones, ""), body.Properties.DiskSizeGB, err)
	}
	return err
}

// zoneRedundant ends the types of disks that are in all zones ("Redundancy options for managed disks", learn.microsoft.com).
const zoneRedundant = "_ZRS"

// zoneOfLabel returns the zone that a Node's label means, which may be one that Azure's own cloud controller manager has
// written: REGION-ZONE, or 0, a fault domain, for a Node in no zone (cloud-provider-azure, "Use Availability Zones").
func (p *Provider) zoneOfLabel(zone string) string {
	if zone == "0" {
		return ""
	}
	return strings.TrimPrefix(zone, p.cfg.Region+"-")
}

// fill completes the model of a disk: what the spec leaves open is its source's, or the configured one.
func (p *Provider) fill(ctx context.Context, body *volume, spec provider.DiskSpec) (err error) {
	var source *volume
	if id := body.Properties.CreationData.SourceResourceID; id != "" {
		if source, err = p.getVolume(ctx, id); err != nil {
			return err
		}
		switch least := source.bytes(); {
		case spec.Bytes == 0:
			spec.Bytes = least
		case spec.Bytes < least:
			return fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, spec.Bytes, source.Name, least)
		}
	}
	if body.Properties.DiskSizeGB, err = disks.GiB(spec.Bytes, spec.Limit, 1, maxGiB); err != nil {
		return err
	}
	body.SKU = &sku{cmp.Or(spec.Type, p.cfg.DiskType)}
	redundant := strings.HasSuffix(strings.ToUpper(body.SKU.Name), zoneRedundant)
	switch {
	case spec.Zone != "" && !zoneName.MatchString(spec.Zone):
		return fmt.Errorf("%w: zone %.40q: Azure's are numbers, such as 1", provider.ErrInvalidArgument, spec.Zone)
	case spec.Zone != "" && redundant:
		return fmt.Errorf("%w: zone %s for type %s, which is in all zones", provider.ErrInvalidArgument, spec.Zone, body.SKU.Name)
	case spec.Zone != "":
		body.Zones = []string{spec.Zone}
	case source != nil && len(source.Zones) > 0 && !redundant:
		body.Zones = source.Zones
	case len(p.cfg.Zones) > 0 && !redundant:
		body.Zones = p.cfg.Zones[:1]
	}
	return p.encrypt(body)
}

// encrypt lets the configured set encrypt a disk. One for the OS disks of confidential VMs is for nothing else
// (Disk Encryption Sets, encryptionType), and Azure's key in its place would be a surprise.
func (p *Provider) encrypt(body *volume) error {
	switch {
	case p.cfg.DiskKeySet == "":
		return nil
	case !p.cfg.DisableCVM && p.cfg.DiskEncryption == "DiskWithVMGuestState":
		return fmt.Errorf("%w: -azure-disk-encryption-set-id (AZURE_DISK_ENCRYPTION_SET_ID) is a set for the OS disks of confidential VMs, which cannot encrypt the disks of volumes: run the volumes' driver without it, or with another set and -azure-disk-encryption (AZURE_DISK_ENCRYPTION) VMGuestStateOnly", provider.ErrInvalidArgument)
	}
	body.Properties.Encryption = &encryption{"EncryptionAtRestWithCustomerKey", p.cfg.DiskKeySet}
	return nil
}

// maxGiB is the size of the largest disks (those of type UltraSSD_LRS: "Azure managed disk types", learn.microsoft.com).
const maxGiB = 65536

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk %s", last(diskID))
	v, err := p.lookUp(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return p.disk(v), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	err = p.matching(ctx, kindDisk, match, func(v *volume) { list = append(list, *p.disk(v)) })
	return list, err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) (err error) {
	defer explain(&err, "delete disk %s", last(diskID))
	return p.deleteVolume(ctx, kindDisk, diskID)
}

// CreateSnapshot implements provider.DiskSnapshotter.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	id, err := p.parseVolume(kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	v, err := p.makeVolume(ctx, kindSnapshot, key, provider.DiskSpec{FromDisk: id, Tags: tags})
	if err != nil {
		return nil, err
	}
	if made = p.snapshot(v); made.DiskID != id {
		return nil, fmt.Errorf("%w: snapshot %s of the same key is of disk %s", provider.ErrAlreadyExists, v.Name, made.DiskID)
	}
	return made, nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot %s", last(snapshotID))
	v, err := p.lookUp(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return p.snapshot(v), nil
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	err = p.matching(ctx, kindSnapshot, match, func(v *volume) { list = append(list, *p.snapshot(v)) })
	return list, err
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) (err error) {
	defer explain(&err, "delete snapshot %s", last(snapshotID))
	return p.deleteVolume(ctx, kindSnapshot, snapshotID)
}

func (p *Provider) lookUp(ctx context.Context, k volumeKind, id string) (*volume, error) {
	id, err := p.parseVolume(k, id)
	if err != nil {
		return nil, err
	}
	return p.getVolume(ctx, id)
}

// matching calls do with each of ours whose tags include all of match. Azure cannot filter these lists.
func (p *Provider) matching(ctx context.Context, k volumeKind, match map[string]string, do func(*volume)) error {
	if len(match) == 0 {
		return fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	return each(ctx, p.cloud, p.cloud.listURL(p.cfg.ResourceGroup, k.resource, diskAPIVersion), func(v *volume) error {
		if p.keyOf(k, v) != "" && provider.HasTags(v.Tags, match) {
			do(v)
		}
		return nil
	})
}

func (p *Provider) deleteVolume(ctx context.Context, k volumeKind, id string) error {
	v, err := p.lookUp(ctx, k, id)
	switch {
	case errors.Is(err, provider.ErrNotFound):
		return nil
	case err != nil:
		return err
	case p.keyOf(k, v) == "":
		return fmt.Errorf("%w: %s was not made here", provider.ErrPermissionDenied, v.Name)
	}
	return p.removeVolume(ctx, p.volumeID(k, p.cfg.ResourceGroup, strings.ToLower(v.Name)))
}

// removeVolume returns when the disk or snapshot is gone.
func (p *Provider) removeVolume(ctx context.Context, id string) error {
	return p.tempo.ask.Until(ctx, func() (bool, error) {
		v, err := p.getVolume(ctx, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case v.ManagedBy != "":
			return false, fmt.Errorf("%w: VM %s has it", provider.ErrInUse, last(v.ManagedBy))
		}
		if err = p.change(ctx, http.MethodDelete, id, nil); busy(err) {
			err = nil
		}
		return false, err
	})
}

// busy reports whether another operation has what was to be changed, and nothing is wrong otherwise.
func busy(err error) bool {
	return slices.Contains([]string{"AnotherOperationInProgress", "AttachDiskWhileBeingDetached", "Conflict", "OperationPreempted", "RetryableError"}, codeOf(err))
}
