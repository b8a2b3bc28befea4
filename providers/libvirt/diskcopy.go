// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	x "libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// awaitMaker waits for the process that makes a volume, and as long as the daemon works
// for it. It returns the volume as it is then, or nil when it is gone.
func (p *Provider) awaitMaker(ctx context.Context, v *volume) (*volume, error) {
	for end := time.Now().Add(p.makerWait); time.Now().Before(end); {
		if err := poll.Sleep(ctx, otherPoll); err != nil {
			return nil, err
		}
		now, err := p.loadVolume(ctx, v.id)
		if err != nil || now == nil || now.Phase == phaseReady {
			return now, err
		}
		if _, err := p.hv.download(ctx, p.cfg.Pool, v.file, 0, 1); isBusy(err) {
			end = time.Now().Add(p.makerWait)
		}
	}
	logger().Info("removing a partly created volume", "volume", v.id)
	return nil, p.dropVolume(ctx, v)
}

// fillOrDrop makes a volume, after the record that it is being made.
func (p *Provider) fillOrDrop(ctx context.Context, v *volume, spec provider.DiskSpec) error {
	source, err := p.sourceOf(ctx, spec)
	if err != nil {
		return err
	}
	bytes := spec.Bytes
	if source != nil {
		defer source.unlock()
		if bytes = cmp.Or(bytes, source.bytes); bytes < source.bytes {
			return fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, bytes, source.id, source.bytes)
		}
	}
	if v.bytes, err = roundSize(bytes, spec.Limit); err != nil {
		return err
	}
	v.Created = time.Now().UTC().Truncate(time.Second)
	if err := p.saveVolume(ctx, v, phaseMaking); err != nil {
		return err
	}
	if err = p.fill(ctx, v, source); err == nil {
		err = p.saveVolume(ctx, v, phaseReady)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, undoWait)
		defer cancel()
		return errors.Join(classify(err), p.dropVolume(ctx, v))
	}
	return nil
}

// source is a volume that stays as it is while it is copied.
type source struct {
	*volume
	unlock func()
}

// sourceOf returns what a disk is to be a copy of, or nil.
func (p *Provider) sourceOf(ctx context.Context, spec provider.DiskSpec) (s *source, err error) {
	s = &source{unlock: func() {}}
	switch {
	case spec.FromSnapshot != "":
		s.volume, err = p.readyVolume(ctx, kindSnapshot, spec.FromSnapshot)
	case spec.FromDisk != "":
		s.volume, s.unlock, err = p.lockVolume(ctx, spec.FromDisk)
	default:
		return nil, nil
	}
	return s, err
}

// fill makes an image, in place of one that nobody has finished.
func (p *Provider) fill(ctx context.Context, v *volume, from *source) error {
	if err := p.dropImage(ctx, v); err != nil {
		return err
	}
	first := v.bytes
	if from != nil {
		first = from.bytes
	}
	text, err := volumeXML(v.file, uint64(first), "qcow2", nil)
	if err != nil {
		return err
	}
	switch from {
	case nil:
		err = p.hv.createVolume(ctx, p.cfg.Pool, text)
	default:
		err = p.copyTo(ctx, text, v, from.volume)
	}
	if err == nil && first < v.bytes {
		err = p.grow(ctx, v, v.bytes)
	}
	return poolError(p.cfg.Pool, err)
}

// copyTo copies a volume as it is at one time. QEMU's locks keep a domain from starting
// while the storage driver reads, and that from reading what a domain writes.
func (p *Provider) copyTo(ctx context.Context, text string, v, from *volume) error {
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return err
	}
	name := liveName(domains, from.path)
	if name == "" {
		return p.hv.copyVolume(ctx, p.cfg.Pool, text, from.file)
	}
	pool, err := p.poolNamed(ctx, p.cfg.Pool)
	if err == nil {
		err = p.hv.createVolume(ctx, p.cfg.Pool, text)
	}
	if err != nil {
		return err
	}
	backup := x.DomainBackup{Push: &x.DomainBackupPush{Disks: &x.DomainBackupPushDisks{Disks: []x.DomainBackupPushDisk{{
		Name: name, Driver: &x.DomainBackupDiskDriver{Type: "qcow2"}, Target: fileSource(pool.path(v.file)),
	}}}}}
	if text, err = backup.Marshal(); err != nil {
		return err
	}
	return p.backUp(ctx, holder(domains, from.path, ""), text)
}

// backupPoll is how often a domain is asked how far its backup is.
const backupPoll = 50 * time.Millisecond

// backUp copies by the QEMU that has the disk: what the guest writes later is not in it.
func (p *Provider) backUp(ctx context.Context, id, text string) error {
	if err := p.hv.backup(ctx, id, text); err != nil {
		return fmt.Errorf("%w: a domain makes one backup at a time: %w", provider.ErrUnavailable, err)
	}
	for {
		_, err := p.hv.backupXML(ctx, id)
		if isCode(err, lv.ErrNoDomainBackup) {
			break
		}
		if err == nil {
			err = poll.Sleep(ctx, backupPoll)
		}
		if err != nil {
			return err
		}
	}
	if done, err := p.hv.backedUp(ctx, id); err != nil || !done {
		return fmt.Errorf("%w: the domain's QEMU has not finished the copy: %w", provider.ErrUnavailable, cmp.Or(err, errors.New("see the daemon's log")))
	}
	return nil
}

// dropImage removes an image, and ends a backup to it that a killed process has begun.
func (p *Provider) dropImage(ctx context.Context, v *volume) error {
	ids, err := p.hv.domains(ctx)
	if err != nil || v.FromDisk == "" {
		ids = nil
	}
	for _, id := range ids {
		for text, _ := p.hv.backupXML(ctx, id); strings.Contains(text, "/"+v.file); text, _ = p.hv.backupXML(ctx, id) {
			if err := errors.Join(p.hv.abortJob(ctx, id), poll.Sleep(ctx, backupPoll)); err != nil && ctx.Err() != nil {
				return err
			}
		}
	}
	return p.removeVolume(ctx, v.file)
}

func (p *Provider) removeVolume(ctx context.Context, file string) error {
	err := whileBusy(ctx, func() error { return p.hv.deleteVolume(ctx, p.cfg.Pool, file) })
	if isCode(err, lv.ErrNoStorageVol) {
		return nil
	}
	return err
}

// dropVolume removes the record last: until then the volume can be listed.
func (p *Provider) dropVolume(ctx context.Context, v *volume) error {
	if err := p.dropImage(ctx, v); err != nil {
		return err
	}
	return p.removeVolume(ctx, recordFile(v.id))
}

// deleteVolume removes a disk or a snapshot in whatever state it is.
func (p *Provider) deleteVolume(ctx context.Context, kind, id string) error {
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return classify(fmt.Errorf("delete %s: %w", id, err))
	}
	defer unlock()
	v, err := p.existingVolume(ctx, kind, id)
	if errors.Is(err, provider.ErrNotFound) {
		if v, err = (&volume{id: id, file: imageFile(id)}), nil; !ownVolumeID.MatchString(id) || !strings.HasPrefix(id, kind) {
			return nil
		}
	} else if err == nil && v.Key == "" {
		err = fmt.Errorf("%w: CreateDisk did not make it", provider.ErrPermissionDenied)
	}
	if err == nil {
		err = p.checkUnused(ctx, v)
	}
	if err == nil {
		err = p.dropVolume(ctx, v)
	}
	if err != nil {
		return classify(fmt.Errorf("delete %s: %w", id, err))
	}
	return nil
}

func (p *Provider) checkUnused(ctx context.Context, v *volume) error {
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return err
	}
	if id := holder(domains, v.path, ""); id != "" {
		return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, id)
	}
	return nil
}
