// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/volume"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/disks"
)

// Ids of disks and snapshots are the names of their volumes: these and a hash of the key. The engine
// gives a name once, and its labels never change.
const (
	kindDisk     = "outrigger-disk-"
	kindSnapshot = "outrigger-snapshot-"
)

// Labels of volumes, and of the containers that work on them, besides owner tags.
const (
	// labelDisk is the id of the disk or snapshot that something belongs to.
	labelDisk = "outrigger.disk"
	// labelSerial is the serial number and the name of the file: another disk of the same key has another.
	labelSerial       = "outrigger.disk.serial"
	labelBytes        = "outrigger.disk.bytes"
	labelFromDisk     = "outrigger.disk.from-disk"
	labelFromSnapshot = "outrigger.disk.from-snapshot"
	// labelInstance is the instance that a container holds the disk for.
	labelInstance = "outrigger.disk.instance"
)

// maxGiB is the largest file of ext4 with blocks of 4 KiB, whole GiB of it.
const maxGiB = 16<<10 - 1

// disk is a disk or a snapshot: a volume with one sparse file. An empty volume beside it is the record of each size that the
// file has at least; without one the file may not be complete.
type disk struct {
	id, serial string
	labels     map[string]string
	created    time.Time
	bytes      int64
	ready      bool
	// instance has it, by the container holder.
	instance, holder string
}

func (d *disk) disk() *provider.Disk {
	tags := tagsIn(d.labels)
	return &provider.Disk{ID: d.id, Key: tags[provider.TagKey], Bytes: d.bytes, FromDisk: d.labels[labelFromDisk], FromSnapshot: d.labels[labelFromSnapshot],
		InstanceID: d.instance, Tags: tags, Created: d.created}
}

func (d *disk) snapshot() *provider.Snapshot {
	tags := tagsIn(d.labels)
	return &provider.Snapshot{ID: d.id, Key: tags[provider.TagKey], DiskID: d.labels[labelFromDisk], Bytes: d.bytes, Ready: d.ready, Tags: tags, Created: d.created}
}

func diskOf(v volume.Volume) *disk {
	d := &disk{id: v.Name, serial: v.Labels[labelSerial], labels: v.Labels, bytes: bytesOf(v.Labels)}
	if made, err := time.Parse(time.RFC3339, v.CreatedAt); err == nil {
		d.created = made.UTC()
	}
	return d
}

func bytesOf(labels map[string]string) int64 {
	n, _ := strconv.ParseInt(labels[labelBytes], 10, 64)
	return n
}

// explain gives an error its class and says what failed.
func explain(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf(format+": %w", append(args, classify(*err))...)
	}
}

// lockDisk has one at a time in this process work on a disk.
func (p *Provider) lockDisk(ctx context.Context, id string) (unlock func(), err error) {
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, err
	}
	unlock, err = p.locks.Take(ctx, id)
	if err != nil {
		err = fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return unlock, err
}

// volumes returns those with a label. The engine takes the beginning of a value for all of it: ids are as long as each other.
func (p *Provider) volumes(ctx context.Context, label string) ([]volume.Volume, error) {
	list, err := p.engine.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", label)})
	return list.Items, err
}

// disks returns those with a label, by id.
func (p *Provider) disks(ctx context.Context, label string) (map[string]*disk, error) {
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, err
	}
	volumes, err := p.volumes(ctx, label)
	if err != nil {
		return nil, err
	}
	containers, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", label)})
	if err != nil {
		return nil, err
	}
	found := map[string]*disk{}
	for _, v := range volumes {
		if v.Name == v.Labels[labelDisk] {
			found[v.Name] = diskOf(v)
		}
	}
	for _, v := range volumes {
		if d := found[v.Labels[labelDisk]]; d != nil && v.Name != d.id && v.Labels[labelSerial] == d.serial {
			d.ready, d.bytes = true, max(d.bytes, bytesOf(v.Labels))
		}
	}
	for _, c := range containers.Items {
		if d := found[c.Labels[labelDisk]]; d != nil && c.Labels[labelInstance] != "" {
			d.instance, d.holder = c.Labels[labelInstance], c.ID
		}
	}
	return found, nil
}

// find returns a disk or snapshot; nil if there is none.
func (p *Provider) findDisk(ctx context.Context, id string) (*disk, error) {
	found, err := p.disks(ctx, labelDisk+"="+id)
	return found[id], err
}

func (p *Provider) existingDisk(ctx context.Context, kind, id string) (*disk, error) {
	var d *disk
	var err error
	if strings.HasPrefix(id, kind) {
		d, err = p.findDisk(ctx, id)
	}
	if err == nil && d == nil {
		err = fmt.Errorf("%w: no volume %q of a %s", provider.ErrNotFound, id, strings.Trim(strings.TrimPrefix(kind, "outrigger"), "-"))
	}
	return d, err
}

// readyDisk returns one that is complete: it completes one whose maker was killed, or whose records somebody has pruned.
func (p *Provider) readyDisk(ctx context.Context, kind, id string) (*disk, error) {
	d, err := p.existingDisk(ctx, kind, id)
	if err == nil && !d.ready {
		err = p.fillDisk(ctx, d, d.bytes)
	}
	return d, err
}

// CreateDisk implements provider.DiskController.
func (p *Provider) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (made *provider.Disk, err error) {
	defer explain(&err, "create disk")
	switch {
	case spec.Type != "":
		return nil, fmt.Errorf("%w: type %q: this provider has no types of disks", provider.ErrInvalidArgument, spec.Type)
	case spec.Zone != "":
		return nil, fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	}
	d, err := p.makeDisk(ctx, kindDisk, key, spec)
	if err != nil {
		return nil, err
	}
	return d.disk(), nil
}

// CreateSnapshot implements provider.DiskSnapshotter. It returns when the copy is complete.
func (p *Provider) CreateSnapshot(ctx context.Context, key, diskID string, tags map[string]string) (made *provider.Snapshot, err error) {
	defer explain(&err, "create snapshot")
	d, err := p.makeDisk(ctx, kindSnapshot, key, provider.DiskSpec{FromDisk: diskID, Tags: tags})
	if err != nil {
		return nil, err
	}
	return d.snapshot(), nil
}

// makeDisk makes the disk or snapshot of a key, or goes on with one that is not complete.
func (p *Provider) makeDisk(ctx context.Context, kind, key string, spec provider.DiskSpec) (*disk, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if key == "" {
		return nil, fmt.Errorf("%w: an empty key", provider.ErrInvalidArgument)
	}
	sum := sha256.Sum256([]byte(key))
	id := kind + hex.EncodeToString(sum[:16])
	unlock, err := p.lockDisk(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d, err := p.findDisk(ctx, id)
	if err == nil && d == nil {
		d, err = p.planDisk(ctx, id, key, spec)
	}
	switch {
	case err != nil:
		return nil, err
	case !spec.Fits(d.disk()):
		return nil, fmt.Errorf("%w: volume %s of the same key has %d bytes, and is from disk %q, snapshot %q",
			provider.ErrAlreadyExists, id, d.bytes, d.labels[labelFromDisk], d.labels[labelFromSnapshot])
	case d.ready:
		return d, nil
	}
	if err := p.fillDisk(ctx, d, d.bytes); err != nil {
		if errors.Is(err, provider.ErrNotFound) { // what it is to be a copy of is gone
			err = errors.Join(err, p.removeDisk(ctx, id))
		}
		return nil, err
	}
	return d, nil
}

// planDisk makes the volume, whose labels say what the disk is to be. Of two that do so at the same time, both get the same.
func (p *Provider) planDisk(ctx context.Context, id, key string, spec provider.DiskSpec) (*disk, error) {
	bytes := spec.Bytes
	source, err := p.sourceOf(ctx, spec.FromDisk, spec.FromSnapshot)
	switch {
	case err != nil:
		return nil, err
	case source != nil && bytes == 0:
		bytes = source.bytes
	case source != nil && bytes < source.bytes:
		return nil, fmt.Errorf("%w: %d bytes for a copy of %s, which has %d", provider.ErrInvalidArgument, bytes, source.id, source.bytes)
	}
	size, err := disks.GiB(bytes, spec.Limit, 1, maxGiB)
	if err != nil {
		return nil, err
	}
	random := make([]byte, 10)
	rand.Read(random)
	labels := map[string]string{labelDisk: id, labelSerial: hex.EncodeToString(random), labelBytes: strconv.FormatInt(size<<30, 10)}
	for label, value := range map[string]string{labelName: spec.Name, labelFromDisk: spec.FromDisk, labelFromSnapshot: spec.FromSnapshot} {
		if value != "" {
			labels[label] = value
		}
	}
	for tag, value := range spec.Tags {
		labels[tagPrefix+tag] = value
	}
	labels[tagPrefix+provider.TagKey] = key
	made, err := p.engine.VolumeCreate(ctx, client.VolumeCreateOptions{Name: id, Labels: labels})
	if err == nil && made.Volume.Labels[labelDisk] != id {
		err = fmt.Errorf("%w: volume %s is somebody else's", provider.ErrAlreadyExists, id)
	}
	return diskOf(made.Volume), err
}

// sourceOf returns what a disk is a copy of; nil if it is none.
func (p *Provider) sourceOf(ctx context.Context, diskID, snapshotID string) (*disk, error) {
	switch {
	case diskID != "":
		return p.readyDisk(ctx, kindDisk, diskID)
	case snapshotID != "":
		return p.readyDisk(ctx, kindSnapshot, snapshotID)
	}
	return nil, nil
}

// fillDisk makes the file of a disk, of at least so many bytes, and the record of its size.
func (p *Provider) fillDisk(ctx context.Context, d *disk, bytes int64) error {
	w := worker{of: d, name: d.id + suffixWork, args: []string{"make", d.serial, strconv.FormatInt(bytes, 10)}}
	if !d.ready {
		var err error
		if w.source, err = p.sourceOf(ctx, d.labels[labelFromDisk], d.labels[labelFromSnapshot]); err != nil {
			return err
		}
	}
	if w.source != nil {
		w.args = append(w.args, w.source.serial)
	}
	line, err := p.work(ctx, w)
	if err != nil {
		return err
	}
	if bytes, err = strconv.ParseInt(line, 10, 64); err != nil {
		return fmt.Errorf("%w: the size of its file: %w", provider.ErrUnavailable, err)
	}
	labels := map[string]string{labelDisk: d.id, labelSerial: d.serial, labelBytes: strconv.FormatInt(bytes, 10)}
	_, err = p.engine.VolumeCreate(ctx, client.VolumeCreateOptions{Name: fmt.Sprintf("%s-%s-%d", d.id, d.serial, bytes), Labels: labels})
	d.ready, d.bytes = err == nil, bytes
	return err
}

// GetDisk implements provider.DiskController.
func (p *Provider) GetDisk(ctx context.Context, diskID string) (found *provider.Disk, err error) {
	defer explain(&err, "get disk")
	d, err := p.existingDisk(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	return d.disk(), nil
}

// GetSnapshot implements provider.DiskSnapshotter.
func (p *Provider) GetSnapshot(ctx context.Context, snapshotID string) (found *provider.Snapshot, err error) {
	defer explain(&err, "get snapshot")
	d, err := p.existingDisk(ctx, kindSnapshot, snapshotID)
	if err != nil {
		return nil, err
	}
	return d.snapshot(), nil
}

// ListDisks implements provider.DiskController.
func (p *Provider) ListDisks(ctx context.Context, match map[string]string) (list []provider.Disk, err error) {
	defer explain(&err, "list disks")
	err = p.matching(ctx, kindDisk, match, func(d *disk) { list = append(list, *d.disk()) })
	return list, err
}

// ListSnapshots implements provider.DiskSnapshotter.
func (p *Provider) ListSnapshots(ctx context.Context, match map[string]string) (list []provider.Snapshot, err error) {
	defer explain(&err, "list snapshots")
	err = p.matching(ctx, kindSnapshot, match, func(d *disk) { list = append(list, *d.snapshot()) })
	return list, err
}

// matching shows those of a kind whose tags include all of match.
func (p *Provider) matching(ctx context.Context, kind string, match map[string]string, show func(*disk)) error {
	if len(match) == 0 {
		return fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	found, err := p.disks(ctx, labelDisk)
	for id, d := range found {
		if strings.HasPrefix(id, kind) && provider.HasTags(tagsIn(d.labels), match) {
			show(d)
		}
	}
	return err
}

// DeleteDisk implements provider.DiskController.
func (p *Provider) DeleteDisk(ctx context.Context, diskID string) error {
	return p.deleteDisk(ctx, kindDisk, diskID)
}

// DeleteSnapshot implements provider.DiskSnapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.deleteDisk(ctx, kindSnapshot, snapshotID)
}

func (p *Provider) deleteDisk(ctx context.Context, kind, id string) (err error) {
	defer explain(&err, "delete %s", id)
	if !strings.HasPrefix(id, kind) {
		return nil // never one of ours
	}
	unlock, err := p.lockDisk(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := p.findDisk(ctx, id)
	if err != nil {
		return err
	}
	if d != nil {
		if err := p.free(ctx, d); err != nil {
			return err
		}
	}
	return p.removeDisk(ctx, id)
}

// removeDisk removes the volume of a disk, and then the records of its sizes. The engine removes none that a container has.
func (p *Provider) removeDisk(ctx context.Context, id string) error {
	volumes, err := p.volumes(ctx, labelDisk+"="+id)
	if err != nil {
		return err
	}
	if len(volumes) == 0 {
		_, err := p.engine.VolumeInspect(ctx, id, client.VolumeInspectOptions{})
		if err == nil {
			return fmt.Errorf("%w: the volume is somebody else's", provider.ErrPermissionDenied)
		}
		return unlessAbsent(err)
	}
	if err := p.removeWork(ctx, id); err != nil {
		return err
	}
	names := []string{id}
	for _, v := range volumes {
		if v.Name != id {
			names = append(names, v.Name)
		}
	}
	for _, name := range names {
		_, err := p.engine.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
		if errdefs.IsConflict(err) {
			err = fmt.Errorf("%w: %w", provider.ErrInUse, err)
		}
		if err := unlessAbsent(err); err != nil {
			return err
		}
	}
	return nil
}

// removeWork removes the containers that work on a disk, and those that have made a copy of it and were left.
func (p *Provider) removeWork(ctx context.Context, id string) error {
	filter := client.Filters{}.Add("volume", id).Add("label", labelDisk)
	list, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		if c.Labels[labelInstance] == "" && (c.Labels[labelDisk] == id || c.State != container.StateRunning) {
			if err := p.remove(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func unlessAbsent(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// ResizeDisk implements provider.DiskController. The guest sees the new size at once.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (grown *provider.Disk, err error) {
	defer explain(&err, "resize disk")
	if bytes <= 0 {
		return nil, fmt.Errorf("%w: %d bytes", provider.ErrInvalidArgument, bytes)
	}
	size, err := disks.GiB(bytes, 0, 1, maxGiB)
	if err != nil {
		return nil, err
	}
	unlock, err := p.lockDisk(ctx, diskID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d, err := p.readyDisk(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	if d.bytes < size<<30 {
		if err := p.fillDisk(ctx, d, size<<30); err != nil {
			return nil, err
		}
	}
	return d.disk(), nil
}
