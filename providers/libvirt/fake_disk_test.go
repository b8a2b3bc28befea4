// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"slices"
	"strings"

	lv "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/provider/conformance"
)

// Errors and their codes are those of libvirt 9.0 (qemu_driver.c, qemu_hotplug.c,
// domain_conf.c, storage_driver.c), as TestConformance meets them.

func (f *fakeDaemon) domainXML(ctx context.Context, id string, flags lv.DomainXMLFlags) (text string, err error) {
	err = f.withDomain(ctx, "domainXML", id, func(d *fakeDomain) error {
		doc := d.def
		if devices := *d.def.Devices; flags&lv.DomainXMLInactive == 0 && d.state != lv.DomainShutoff {
			number := 1
			devices.Disks = d.live
			doc.ID, doc.Devices = &number, &devices
		}
		text, err = doc.Marshal()
		return err
	})
	return text, err
}

// disks returns the list of disks that a change is about.
func (d *fakeDomain) disks(impact lv.DomainModificationImpact) (*[]libvirtxml.DomainDisk, error) {
	switch {
	case impact == lv.DomainAffectConfig:
		return &d.def.Devices.Disks, nil
	case d.state == lv.DomainShutoff:
		return nil, said(lv.ErrOperationInvalid, "Requested operation is not valid: domain is not running")
	}
	return &d.live, nil
}

func (f *fakeDaemon) attach(ctx context.Context, id, text string, impact lv.DomainModificationImpact) error {
	return f.withDomain(ctx, "attach", id, func(d *fakeDomain) error {
		var disk libvirtxml.DomainDisk
		disks, err := d.disks(impact)
		if err == nil {
			err = disk.Unmarshal(text)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(*disks, func(other libvirtxml.DomainDisk) bool { return other.Target.Dev == disk.Target.Dev }) {
			return said(lv.ErrOperationFailed, "operation failed: target %s already exists", disk.Target.Dev)
		}
		if impact == lv.DomainAffectLive && f.locked(disk.Source.File.File) {
			return said(lv.ErrInternalError, `internal error: unable to execute QEMU command 'blockdev-add': Failed to get "write" lock`)
		}
		*disks = append(*disks, disk)
		return nil
	})
}

// locked reports whether a QEMU has the image open.
func (f *fakeDaemon) locked(path string) bool {
	for _, d := range f.doms {
		if slices.ContainsFunc(d.live, func(disk libvirtxml.DomainDisk) bool { return disk.Source.File.File == path }) {
			return true
		}
	}
	return false
}

func (f *fakeDaemon) detach(ctx context.Context, id, text string, impact lv.DomainModificationImpact) error {
	return f.withDomain(ctx, "detach", id, func(d *fakeDomain) error {
		var disk libvirtxml.DomainDisk
		disks, err := d.disks(impact)
		if err == nil {
			err = disk.Unmarshal(text)
		}
		if err != nil {
			return err
		}
		n := len(*disks)
		*disks = slices.DeleteFunc(slices.Clone(*disks), func(other libvirtxml.DomainDisk) bool { return other.Target.Dev == disk.Target.Dev })
		if len(*disks) == n {
			return said(lv.ErrDeviceMissing, "device not found: no target device %s", disk.Target.Dev)
		}
		return nil
	})
}

func (f *fakeDaemon) resizeDisk(ctx context.Context, id, disk string, bytes uint64) error {
	return f.withDomain(ctx, "resizeDisk", id, func(d *fakeDomain) error {
		for _, live := range d.live {
			if live.Target.Dev == disk {
				f.vols[strings.TrimPrefix(live.Source.File.File, "/pool/")].def.Capacity.Value = bytes
				return nil
			}
		}
		return said(lv.ErrInvalidArg, "invalid argument: disk '%s' was not found in the domain config", disk)
	})
}

// backup copies at once.
func (f *fakeDaemon) backup(ctx context.Context, id, text string) error {
	return f.withDomain(ctx, "backup", id, func(d *fakeDomain) error {
		var b libvirtxml.DomainBackup
		if err := b.Unmarshal(text); err != nil {
			return said(lv.ErrXMLError, "%v", err)
		}
		for _, live := range d.live {
			if disk := b.Push.Disks.Disks[0]; live.Target.Dev == disk.Name {
				from, to := f.vols[strings.TrimPrefix(live.Source.File.File, "/pool/")], f.vols[strings.TrimPrefix(disk.Target.File.File, "/pool/")]
				if to == nil || to.def.Capacity.Value != from.def.Capacity.Value {
					return said(lv.ErrConfigUnsupported, "the target of a backup has the size of the disk")
				}
				to.content, d.backedUp = slices.Clone(from.content), true
				return nil
			}
		}
		return said(lv.ErrInvalidArg, "invalid argument: no such disk")
	})
}

func (f *fakeDaemon) backupXML(ctx context.Context, id string) (string, error) {
	return "", f.withDomain(ctx, "backupXML", id, func(*fakeDomain) error {
		return said(lv.ErrNoDomainBackup, "Domain backup job id not found: no domain backup job present")
	})
}

func (f *fakeDaemon) backedUp(ctx context.Context, id string) (done bool, err error) {
	err = f.withDomain(ctx, "backedUp", id, func(d *fakeDomain) error {
		done = d.backedUp
		return nil
	})
	return done, err
}

func (f *fakeDaemon) abortJob(ctx context.Context, id string) error {
	return f.withDomain(ctx, "abortJob", id, func(*fakeDomain) error {
		return said(lv.ErrOperationInvalid, "Requested operation is not valid: no job is active on the domain")
	})
}

func (f *fakeDaemon) copyVolume(ctx context.Context, pool, text, from string) error {
	return f.withVolume(ctx, "copyVolume", from, func(source *fakeVolume) error {
		v := &fakeVolume{content: slices.Clone(source.content)}
		if err := v.def.Unmarshal(text); err != nil {
			return said(lv.ErrXMLError, "%v", err)
		}
		if f.vols[v.def.Name] != nil {
			return said(lv.ErrStorageVolExist, "storage volume '%s' exists already", v.def.Name)
		}
		if f.locked("/pool/" + from) {
			return said(lv.ErrInternalError, `internal error: Child process (qemu-img convert) unexpected exit status 1: Failed to get shared "write" lock`)
		}
		f.vols[v.def.Name] = v
		return nil
	})
}

func (f *fakeDaemon) resizeVolume(ctx context.Context, pool, name string, bytes uint64) error {
	return f.withVolume(ctx, "resizeVolume", name, func(v *fakeVolume) error {
		if f.locked("/pool/" + name) {
			return said(lv.ErrInternalError, `internal error: Child process (qemu-img resize) unexpected exit status 1: Failed to get "write" lock`)
		}
		v.def.Capacity.Value = bytes
		return nil
	})
}

func (f *fakeDaemon) writeDisk(id string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.vols[imageFile(id)].content = slices.Clone(data)
	return nil
}

func (f *fakeDaemon) readDisk(id string, n int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.vols[imageFile(id)].content[:n], nil
}

// foreign makes a volume that is not ours: it has no tags.
func (f *fakeDaemon) foreign(map[string]string) (conformance.Foreign, error) {
	const name = "somebodys.qcow2"
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addVolume(name, "qcow2", fakeGiB)
	return conformance.Foreign{DiskID: name, Remove: func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.vols[name] == nil {
			return errors.New(name + " is gone")
		}
		delete(f.vols, name)
		return nil
	}}, nil
}
