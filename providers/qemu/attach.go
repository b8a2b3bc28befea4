// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/outrigger/outrigger/provider"
)

// AttachDisk implements provider.DiskController. The disk's serial number is its id.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	h, err := p.holdDisk(ctx, diskID, instanceID)
	if err == nil {
		defer h.release()
		err = p.attachDisk(ctx, h, instanceID)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("attach disk %s to instance %s: %w", diskID, instanceID, err))
	}
	return &provider.Attachment{Serial: diskID}, nil
}

func (p *Provider) attachDisk(ctx context.Context, h *held, instanceID string) error {
	if err := h.usable(instanceID); err != nil {
		return err
	}
	repeated := h.disk.Instance != ""
	if !repeated {
		if err := p.claimDisk(h); err != nil {
			return err
		}
	}
	if !qemuOf(h.instance).Alive() {
		return nil // it starts with its disks
	}
	err := p.withMonitor(ctx, instanceID, plugWait, func(ctx context.Context, m *monitor) error { return plug(ctx, m, h.disk.ID) })
	if err == nil || !qemuOf(h.instance).Alive() {
		return nil // else it has ended meanwhile
	}
	if repeated {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	return errors.Join(err, p.letGo(ctx, h))
}

// claimDisk writes down which instance has a disk.
func (p *Provider) claimDisk(h *held) error {
	if n := len(p.disksOf(h.instance.ID)); n >= maxDisks {
		return fmt.Errorf("%w: it has %d disks, and can have no more", provider.ErrCapacity, n)
	}
	h.disk.Instance = h.instance.ID
	return p.store.disks().save(h.disk)
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	v, err := p.store.disks().load(diskID)
	if err != nil || v == nil || v.Instance != instanceID {
		return classify(err)
	}
	h, err := p.holdDisk(ctx, diskID, instanceID)
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	if err == nil {
		defer h.release()
		if h.disk.Instance != instanceID {
			return nil
		}
		err = p.letGo(ctx, h)
	}
	if err != nil {
		err = fmt.Errorf("detach disk %s from instance %s: %w", diskID, instanceID, err)
	}
	return classify(err)
}

// letGo has QEMU close a disk, if it runs, and then writes down that no instance has it.
func (p *Provider) letGo(ctx context.Context, h *held) error {
	if h.instance != nil && qemuOf(h.instance).Alive() {
		err := p.withMonitor(ctx, h.instance.ID, plugWait, func(ctx context.Context, m *monitor) error { return unplug(ctx, m, h.disk.ID) })
		if err != nil && qemuOf(h.instance).Alive() {
			return err
		}
	}
	h.disk.Instance = ""
	return p.store.disks().save(h.disk)
}

// letAllGo writes down that an instance whose QEMU has ended has no disks.
func (p *Provider) letAllGo(ctx context.Context, instanceID string) error {
	disks, release, err := p.lockDisksOf(ctx, instanceID)
	if err != nil {
		return err
	}
	defer release()
	for _, v := range disks {
		if v.Instance != instanceID {
			continue
		}
		v.Instance = ""
		if err := p.store.disks().save(v); err != nil {
			return err
		}
	}
	return nil
}

// startWithDisks starts an instance that is off with the disks that it has.
func (p *Provider) startWithDisks(ctx context.Context, r *record) error {
	disks, release, err := p.lockDisksOf(ctx, r.ID)
	if err != nil {
		return err
	}
	defer release()
	r.disks = nil
	for _, v := range disks {
		if v.Instance == r.ID {
			r.disks = append(r.disks, v.ID)
		}
	}
	return p.start(ctx, r)
}

// ResizeDisk implements provider.DiskController.
func (p *Provider) ResizeDisk(ctx context.Context, diskID string, bytes int64) (*provider.Disk, error) {
	size, err := roundSize(bytes, 0)
	if err != nil {
		return nil, fmt.Errorf("resize disk %s: %w", diskID, err)
	}
	h, err := p.holdDisk(ctx, diskID, "")
	if err == nil {
		defer h.release()
		err = p.resize(ctx, h, size)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("resize disk %s: %w", diskID, err))
	}
	return h.disk.disk(), nil
}

// resize makes the image larger before it writes that down: the image has the last word.
func (p *Provider) resize(ctx context.Context, h *held, size int64) error {
	size = max(size, h.disk.Bytes)
	path := p.store.disks().image(h.disk.ID)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < size {
		if err := p.growImage(ctx, h, path, size); err != nil {
			return err
		}
	}
	h.disk.Bytes = size
	return p.store.disks().save(h.disk)
}

// growImage makes an image larger, in a machine that runs by its QEMU, which tells the guest.
func (p *Provider) growImage(ctx context.Context, h *held, path string, size int64) error {
	if h.instance != nil && qemuOf(h.instance).Alive() {
		grow := func(ctx context.Context, m *monitor) error { return growNode(ctx, m, h.disk.ID, size) }
		if err := p.withMonitor(ctx, h.instance.ID, plugWait, grow); err != nil {
			return err
		}
	}
	return growFile(path, size) // which makes it durable
}

// growNode makes a disk larger that is attached to a machine that runs, if it is.
func growNode(ctx context.Context, m *monitor, id string, size int64) error {
	if err := stopCopy(ctx, m, id); err != nil { // that of a process that was killed
		return err
	}
	opened, err := m.hasNode(id)
	if err != nil || !opened {
		return err
	}
	return m.call("block_resize", map[string]any{"node-name": id, "size": size}, nil)
}
