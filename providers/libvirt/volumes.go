// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const poolTitle = "-pool-name (LIBVIRT_POOL)"

// pool is a storage pool whose volumes are files.
type pool struct {
	name, folder string
	available    uint64
}

func (p *pool) path(volume string) string { return path.Join(p.folder, volume) }

// poolKinds are the pools with files, which backing files and consoles need.
var poolKinds = []string{"dir", "fs", "netfs"}

func (p *Provider) poolNamed(ctx context.Context, name string) (*pool, error) {
	info, err := p.hv.pool(ctx, name)
	if isCode(err, lv.ErrNoStoragePool) {
		return nil, fmt.Errorf("%w: %s: %w; make it with virsh pool-define-as", provider.ErrNotFound, poolTitle, err)
	}
	if err != nil {
		return nil, err
	}
	var doc libvirtxml.StoragePool
	if err := doc.Unmarshal(info.xml); err != nil {
		return nil, fmt.Errorf("storage pool %s: %w", name, err)
	}
	switch {
	case !slices.Contains(poolKinds, doc.Type) || doc.Target == nil:
		return nil, fmt.Errorf("%w: %s: pool %s is of type %s; want one of files: %v", provider.ErrInvalidArgument, poolTitle, name, doc.Type, poolKinds)
	case !info.active:
		return nil, fmt.Errorf("%w: %s: pool %s is not active; start it with virsh pool-start %s", provider.ErrUnavailable, poolTitle, name, name)
	}
	return &pool{name, doc.Target.Path, info.available}, nil
}

// base is a volume of which others may be made.
type base struct {
	path, format string
	capacity     uint64 // bytes
}

// volumeNamed returns a volume without its path.
func (p *Provider) volumeNamed(ctx context.Context, pool, name string) (*base, error) {
	text, err := p.hv.volume(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	var doc libvirtxml.StorageVolume
	if err := doc.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	size := doc.Capacity
	if size == nil || size.Unit != "" && size.Unit != "bytes" && size.Unit != "B" {
		return nil, fmt.Errorf("volume %s: its XML has no capacity in bytes", name)
	}
	b := &base{format: "raw", capacity: size.Value}
	if doc.Target != nil && doc.Target.Format != nil {
		b.format = doc.Target.Format.Type
	}
	return b, nil
}

// baseVolume returns the configured base volume, or the one that a pod names.
func (p *Provider) baseVolume(ctx context.Context, pool *pool, image string) (*base, error) {
	name, what := p.cfg.Volume, "-vol-name (LIBVIRT_VOL_NAME)"
	if image != "" {
		name, what = image, "image"
		// A pod must not get to see other pods' disks and seeds.
		if isOwnVolume(image) || strings.ContainsAny(image, "/\x00") {
			return nil, fmt.Errorf("%w: image %q: want the name of a volume in pool %s that is not an instance's", provider.ErrInvalidArgument, image, pool.name)
		}
	}
	b, err := p.volumeNamed(ctx, pool.name, name)
	switch {
	case isCode(err, lv.ErrNoStorageVol):
		return nil, fmt.Errorf("%w: %s: pool %s has no volume %q; upload it with virsh vol-upload", provider.ErrNotFound, what, pool.name, name)
	case err != nil:
		return nil, err
	case b.format != "qcow2" && b.format != "raw":
		return nil, fmt.Errorf("%w: %s: volume %s is of format %s; want qcow2 or raw", provider.ErrInvalidArgument, what, name, b.format)
	}
	b.path = pool.path(name)
	return b, nil
}

func volumeXML(name string, capacity uint64, format string, backing *base) (string, error) {
	doc := libvirtxml.StorageVolume{
		Name:     name,
		Capacity: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: capacity},
		Target:   &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: format}},
	}
	if format == "qcow2" {
		doc.Target.Compat = "1.1" // the default is QEMU's format of 2010
	}
	if backing != nil {
		doc.Allocation = &libvirtxml.StorageVolumeSize{Unit: "bytes"}
		doc.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path: backing.path, Format: &libvirtxml.StorageVolumeTargetFormat{Type: backing.format},
		}
	}
	return doc.Marshal()
}

// makeRoot makes the root disk: a copy-on-write image of the base volume, unless a kernel
// is booted. An earlier attempt's is as good.
func (p *Provider) makeRoot(ctx context.Context, pl *plan) error {
	if pl.base == nil {
		return nil
	}
	pool, name := pl.Pool, volumesOf(pl.id)+rootVolume
	text, err := volumeXML(name, max(uint64(p.cfg.RootDisk)<<30, pl.base.capacity), "qcow2", pl.base)
	if err != nil {
		return err
	}
	err = p.hv.createVolume(ctx, pool, text)
	if !isCode(err, lv.ErrStorageVolExist) || p.target.testDriver() {
		return poolError(pool, err)
	}
	// Another process may be at it; a read is refused until it has finished.
	return whileBusy(ctx, func() error {
		_, err := p.hv.download(ctx, pool, name, 0, 4)
		return err
	})
}

// makeFile makes a volume with that content.
func (p *Provider) makeFile(ctx context.Context, pool, name string, content []byte) error {
	text, err := volumeXML(name, uint64(len(content)), "raw", nil)
	if err != nil {
		return err
	}
	err = p.hv.createVolume(ctx, pool, text)
	if err != nil && !isCode(err, lv.ErrStorageVolExist) {
		return poolError(pool, err)
	}
	err = whileBusy(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		return p.hv.upload(ctx, pool, name, bytes.NewReader(content), int64(len(content)))
	})
	if unsupported(err) && p.target.testDriver() {
		return nil // it has volumes without content
	}
	return poolError(pool, err)
}

// poolError names the pool and its setting when there is no room.
func poolError(pool string, err error) error {
	if err = classify(err); errors.Is(err, provider.ErrCapacity) {
		return fmt.Errorf("%s: pool %s: %w", poolTitle, pool, err)
	}
	return err
}

// removeVolumes removes everything in the pool that belongs to an instance.
func (p *Provider) removeVolumes(ctx context.Context, pool, id string) error {
	names, err := p.volumesIn(ctx, pool, id)
	if err != nil {
		return err
	}
	if console := volumesOf(id) + consoleVolume; slices.Contains(names, console) && p.consoleRolled(ctx, pool, console) {
		// The log daemon has made files that the pool does not know of.
		if err := whileBusy(ctx, func() error { return p.hv.refresh(ctx, pool) }); err != nil {
			return err
		}
		if names, err = p.volumesIn(ctx, pool, id); err != nil {
			return err
		}
	}
	for _, name := range names {
		err := whileBusy(ctx, func() error { return p.hv.deleteVolume(ctx, pool, name) })
		if err != nil && !isCode(err, lv.ErrNoStorageVol) {
			return err
		}
	}
	return nil
}

// volumesIn returns an instance's volumes; a pool that is gone has none.
func (p *Provider) volumesIn(ctx context.Context, pool, id string) ([]string, error) {
	all, err := p.hv.volumes(ctx, pool)
	switch {
	case isCode(err, lv.ErrNoStoragePool):
		return nil, nil
	case isCode(err, lv.ErrOperationInvalid):
		return nil, fmt.Errorf("%w: %s: pool %s is not active; start it with virsh pool-start %s: %w", provider.ErrUnavailable, poolTitle, pool, pool, err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, volumesOf(id)) }), err
}

const (
	busyLimit = 30 * time.Second
	busyPause = 50 * time.Millisecond
)

// whileBusy repeats what a storage pool refuses because of other work on the
// pool or the volume.
func whileBusy(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyLimit)
	defer cancel()
	for {
		err := do()
		if !isBusy(err) || poll.Sleep(ctx, busyPause) != nil {
			return err
		}
	}
}

// isBusy goes by the texts: the code is that of everything that is not
// possible in the present state.
func isBusy(err error) bool {
	if !isCode(err, lv.ErrOperationInvalid, lv.ErrInternalError) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "asynchronous jobs running") || strings.Contains(text, "is still in use") || strings.Contains(text, "still being allocated")
}
