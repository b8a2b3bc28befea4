// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// attachPatience is how long a disk is waited for that another VM has: the one of a
	// pod that is being deleted, as a rule.
	attachPatience = 2 * time.Minute
	attachPause    = time.Second
)

// disksOf returns the volumes that a CSI driver has left to the sandbox's VM, by target,
// and who attaches their disks. kubelet publishes all volumes of a pod before it makes the sandbox.
func (s *Service) disksOf(ctx context.Context, rec *Record) (map[string]*directvolume.Info, provider.DiskController, error) {
	if rec.Pooled || s.opts.Cluster == nil {
		return nil, nil, nil
	}
	root := cmp.Or(s.opts.DirectVolumes, directvolume.Root)
	uid := rec.PodUID
	if uid == "" { // the API server did not answer when the sandbox was made
		targets, err := directvolume.Targets(root)
		if err != nil || len(targets) == 0 {
			return nil, nil, err
		}
		pod, err := s.opts.Cluster.Pod(ctx, rec.PodNamespace, rec.PodName)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: pods of this node have volumes, and whose they are the API server does not say: %w", provider.ErrUnavailable, err)
		}
		uid = pod.UID
	}
	records, err := directvolume.OfPod(root, uid)
	if err != nil || len(records) == 0 {
		return nil, nil, err
	}
	disks, ok := provider.As[provider.DiskController](s.opts.Provider)
	if !ok {
		return nil, nil, fmt.Errorf("%w: provider %s cannot attach disks, and the pod has volumes of %s", provider.ErrUnimplemented, s.opts.ProviderName, directvolume.Driver)
	}
	return records, disks, nil
}

// chooseZone asks for a VM in the zone of the pod's disks, which only a VM there can have.
func (s *Service) chooseZone(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	records, disks, err := s.disksOf(ctx, &rec)
	if err != nil {
		return err
	}
	zone, first := "", ""
	for _, target := range slices.Sorted(maps.Keys(records)) {
		disk, err := disks.GetDisk(ctx, records[target].Disk())
		if err == nil && disk == nil {
			err = fmt.Errorf("%w: the provider returned neither a disk nor an error", provider.ErrUnknown)
		}
		switch {
		case err != nil:
			return fmt.Errorf("look up disk %s: %w", records[target].Disk(), redact.Error(err, nil))
		case zone != "" && disk.Zone != "" && disk.Zone != zone:
			return fmt.Errorf("%w: disk %s is in zone %s, and disk %s in zone %s: no VM can have both", provider.ErrInvalidArgument, first, zone, disk.ID, disk.Zone)
		case zone == "":
			zone, first = disk.Zone, disk.ID
		}
	}
	sb.update(func(rec *Record) { rec.Spec.Zone = zone })
	return nil
}

// attachDisks attaches the pod's disks to its VM. The VM has booted: an init takes no
// disk of a user's for one with its configuration. Nothing undoes it but the removal
// of the instance, which detaches disks.
func (s *Service) attachDisks(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	records, disks, err := s.disksOf(ctx, &rec)
	if err != nil || len(records) == 0 {
		return err
	}
	var list []directvolume.Attached
	for _, target := range slices.Sorted(maps.Keys(records)) {
		info := records[target]
		began := s.opts.Now()
		attachment, err := attachWhenFree(ctx, disks, info.Disk(), rec.InstanceID)
		if err != nil {
			return fmt.Errorf("attach disk %s to instance %s: %w", info.Disk(), rec.InstanceID, redact.Error(err, nil))
		}
		s.note(sb, "attach-disk", began)
		s.logger(sb).Info("attached a disk", "disk", info.Disk(), "instance", rec.InstanceID)
		list = append(list, directvolume.Attached{Target: target, Serial: attachment.Serial, FsType: info.FsType, Options: info.Options, Key: info.Metadata[directvolume.MetadataKey],
			FSGroup: info.Metadata[directvolume.MetadataFSGroup], FSGroupChangePolicy: info.Metadata[directvolume.MetadataFSGroupChangePolicy]})
	}
	return directvolume.WriteAttached(s.journal.folder(rec.ID), list)
}

// attachWhenFree waits while another instance has the disk.
func attachWhenFree(ctx context.Context, disks provider.DiskController, disk, instance string) (*provider.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, attachPatience)
	defer cancel()
	for {
		attachment, err := disks.AttachDisk(ctx, disk, instance)
		if err == nil && (attachment == nil || attachment.Serial == "") {
			err = fmt.Errorf("%w: the provider does not say what the guest knows the disk by", provider.ErrUnknown)
		}
		if !errors.Is(err, provider.ErrInUse) {
			return attachment, err
		}
		if poll.Sleep(ctx, attachPause) != nil {
			return nil, err
		}
	}
}
