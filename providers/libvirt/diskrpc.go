// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"time"

	lv "github.com/digitalocean/go-libvirt"
)

// copyLimit is the longest that the daemon may take to copy a volume.
const copyLimit = time.Hour

func (c *client) domainXML(ctx context.Context, id string, flags lv.DomainXMLFlags) (string, error) {
	return answered(ctx, c, "definition of domain "+id, func(l *lv.Libvirt) (string, error) { return l.DomainGetXMLDesc(domainOf(id), flags) })
}

func (c *client) attach(ctx context.Context, id, xml string, impact lv.DomainModificationImpact) error {
	return c.change(ctx, "attach to domain "+id, func(l *lv.Libvirt) error {
		return l.DomainAttachDeviceFlags(domainOf(id), xml, uint32(impact))
	})
}

func (c *client) detach(ctx context.Context, id, xml string, impact lv.DomainModificationImpact) error {
	return c.change(ctx, "detach from domain "+id, func(l *lv.Libvirt) error {
		return l.DomainDetachDeviceFlags(domainOf(id), xml, uint32(impact))
	})
}

func (c *client) resizeDisk(ctx context.Context, id, disk string, bytes uint64) error {
	return c.change(ctx, "resize disk "+disk+" of domain "+id, func(l *lv.Libvirt) error {
		return l.DomainBlockResize(domainOf(id), disk, bytes, lv.DomainBlockResizeBytes)
	})
}

func (c *client) backup(ctx context.Context, id, xml string) error {
	return c.change(ctx, "back up a disk of domain "+id, func(l *lv.Libvirt) error {
		return l.DomainBackupBegin(domainOf(id), xml, nil, lv.DomainBackupBeginReuseExternal)
	})
}

func (c *client) backupXML(ctx context.Context, id string) (string, error) {
	return answered(ctx, c, "backup of domain "+id, func(l *lv.Libvirt) (string, error) { return l.DomainBackupGetXMLDesc(domainOf(id), 0) })
}

// backedUp goes by a field of the statistics: VIR_DOMAIN_JOB_SUCCESS of libvirt-domain.h.
func (c *client) backedUp(ctx context.Context, id string) (bool, error) {
	return answered(ctx, c, "last job of domain "+id, func(l *lv.Libvirt) (bool, error) {
		_, params, err := l.DomainGetJobStats(domainOf(id), lv.DomainJobStatsCompleted|lv.DomainJobStatsKeepCompleted)
		for _, p := range params {
			if done, ok := p.Value.I.(int32); ok && p.Field == "success" {
				return done == 1, err
			}
		}
		return false, err
	})
}

func (c *client) abortJob(ctx context.Context, id string) error {
	return c.change(ctx, "abort the job of domain "+id, func(l *lv.Libvirt) error { return l.DomainAbortJob(domainOf(id)) })
}

func (c *client) copyVolume(ctx context.Context, pool, xml, from string) error {
	return c.callWithin(ctx, "copy volume "+from, copyLimit, changeGrace, func(l *lv.Libvirt) error {
		p, err := l.StoragePoolLookupByName(pool)
		if err == nil {
			_, err = l.StorageVolCreateXMLFrom(p, xml, volumeOf(pool, from), 0)
		}
		return err
	})
}

func (c *client) resizeVolume(ctx context.Context, pool, name string, bytes uint64) error {
	return c.change(ctx, "resize volume "+name, func(l *lv.Libvirt) error {
		return l.StorageVolResize(volumeOf(pool, name), bytes, 0)
	})
}
