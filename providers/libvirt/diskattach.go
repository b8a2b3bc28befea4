// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	x "libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// maxDisks is how many an instance can have, besides those it is made with. A virtio-scsi
	// controller has 256 targets.
	maxDisks = 64
	// detachWait is how long QEMU may take to let a disk go.
	detachWait = time.Minute
	detachPoll = 50 * time.Millisecond
)

// domainDisks are the names of a domain's disks, by the paths of their images.
type domainDisks struct {
	id           string
	running      bool
	live, config map[string]string
}

// domainDisks returns those of all domains, also of other people's.
func (p *Provider) domainDisks(ctx context.Context) ([]*domainDisks, error) {
	ids, err := p.hv.domains(ctx)
	if err != nil {
		return nil, err
	}
	var all []*domainDisks
	for _, id := range ids {
		d, err := p.disksOf(ctx, id)
		if err != nil {
			return nil, err
		}
		if d != nil {
			all = append(all, d)
		}
	}
	return all, nil
}

// disksOf returns nil when there is no such domain.
func (p *Provider) disksOf(ctx context.Context, id string) (*domainDisks, error) {
	d := &domainDisks{id: id}
	for _, flags := range []lv.DomainXMLFlags{0, lv.DomainXMLInactive} {
		text, err := p.hv.domainXML(ctx, id, flags)
		if isCode(err, lv.ErrNoDomain) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var doc x.Domain
		if err := doc.Unmarshal(text); err != nil {
			return nil, fmt.Errorf("definition of domain %s: %w", id, err)
		}
		names := map[string]string{}
		if doc.Devices != nil {
			for _, disk := range doc.Devices.Disks {
				if disk.Source != nil && disk.Source.File != nil && disk.Target != nil {
					names[disk.Source.File.File] = disk.Target.Dev
				}
			}
		}
		if d.config = names; flags == 0 && doc.ID != nil {
			d.running, d.live = true, names
		}
	}
	return d, nil
}

// holder returns the domain that has an image, and is not one; empty for none.
func holder(domains []*domainDisks, path, not string) string {
	for _, d := range domains {
		if d.id != not && path != "" && (d.live[path] != "" || d.config[path] != "") {
			return d.id
		}
	}
	return ""
}

// liveName returns the name of an image's disk in the domain that runs with it.
func liveName(domains []*domainDisks, path string) string {
	for _, d := range domains {
		if d.live[path] != "" {
			return d.live[path]
		}
	}
	return ""
}

// free returns a name that no disk of the domain has.
func (d *domainDisks) free() (string, error) {
	taken := map[string]bool{}
	for _, names := range []map[string]string{d.live, d.config} {
		for _, name := range names {
			taken[name] = true
		}
	}
	for n := uint(1); n <= maxDisks; n++ { // 0 is the seed
		if name := diskName(n); !taken[name] {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: it has %d disks, and can have no more", provider.ErrCapacity, maxDisks)
}

// diskName is as Linux names disks: sda to sdz, then sdaa.
func diskName(n uint) string {
	if n < 26 {
		return "sd" + string(rune('a'+n))
	}
	return "sd" + string(rune('a'+n/26-1)) + string(rune('a'+n%26))
}

// deviceXML describes a disk on the instance's virtio-scsi controller.
func (v *volume) deviceXML(name string) (string, error) {
	n := uint(0)
	for diskName(n) != name && n < 256 {
		n++
	}
	zero := uint(0)
	disk := x.DomainDisk{
		Device: "disk",
		// A full pool is an error for the guest, which would otherwise stand still.
		Driver:  &x.DomainDiskDriver{Name: "qemu", Type: v.format, Discard: "unmap", ErrorPolicy: "report"},
		Source:  fileSource(v.path),
		Target:  &x.DomainDiskTarget{Dev: name, Bus: "scsi"},
		Serial:  v.serial(),
		Address: &x.DomainAddress{Drive: &x.DomainAddressDrive{Controller: &zero, Bus: &zero, Target: &n, Unit: &zero}},
	}
	return disk.Marshal()
}

// AttachDisk implements provider.DiskController.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	var serial string
	err := p.whileLocked(ctx, "attach disk to", instanceID, func(r *record) error {
		if r.Phase != phaseReady {
			return fmt.Errorf("%w: it is being made", provider.ErrUnavailable)
		}
		v, unlock, err := p.lockVolume(ctx, diskID)
		if err != nil {
			return err
		}
		defer unlock()
		serial = v.serial()
		return p.attachTo(ctx, v, instanceID)
	})
	if err != nil {
		return nil, err
	}
	return &provider.Attachment{Serial: serial}, nil
}

// attachTo changes the definition, then looks whether another process has done so for
// another domain meanwhile, and only then what runs. Of two that see each other both go back.
func (p *Provider) attachTo(ctx context.Context, v *volume, id string) error {
	mine, err := p.soleHolder(ctx, v, id)
	if err != nil {
		return err
	}
	name := mine.config[v.path]
	if name == "" {
		if name = mine.live[v.path]; name == "" {
			if name, err = mine.free(); err != nil {
				return err
			}
		}
		attachErr := p.change(ctx, p.hv.attach, v, id, name, lv.DomainAffectConfig)
		if mine, err = p.soleHolder(ctx, v, id); err != nil {
			return errors.Join(err, attachErr)
		}
		if mine.config[v.path] == "" { // else a call of a process that was killed came first
			return attachErr
		}
	}
	if !mine.running || mine.live[v.path] != "" {
		return nil
	}
	err = p.change(ctx, p.hv.attach, v, id, name, lv.DomainAffectLive)
	if err == nil {
		return nil
	}
	undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	switch now, lookErr := p.disksOf(undoCtx, id); {
	case lookErr != nil || now == nil:
		return errors.Join(err, lookErr)
	case now.live[v.path] != "" || !now.running: // it starts with its disks
		return nil
	}
	return errors.Join(classify(err), p.change(undoCtx, p.hv.detach, v, id, name, lv.DomainAffectConfig))
}

// soleHolder returns the disks of a domain, if no other has the disk. One that has claimed
// it and does not run with it gives it up when another has claimed it too.
func (p *Provider) soleHolder(ctx context.Context, v *volume, id string) (*domainDisks, error) {
	domains, err := p.domainDisks(ctx)
	if err != nil {
		return nil, err
	}
	var mine *domainDisks
	for _, d := range domains {
		if d.id == id {
			mine = d
		}
	}
	if mine == nil {
		return nil, fmt.Errorf("%w: no instance %s at %s", provider.ErrNotFound, id, p.target)
	}
	if other := holder(domains, v.path, id); other != "" {
		err := fmt.Errorf("%w: instance %s has it", provider.ErrInUse, other)
		if name := mine.config[v.path]; name != "" && mine.live[v.path] == "" {
			err = errors.Join(err, p.change(ctx, p.hv.detach, v, id, name, lv.DomainAffectConfig))
		}
		return nil, err
	}
	return mine, nil
}

// change attaches or detaches.
func (p *Provider) change(ctx context.Context, do func(context.Context, string, string, lv.DomainModificationImpact) error,
	v *volume, id, name string, impact lv.DomainModificationImpact) error {
	text, err := v.deviceXML(name)
	if err != nil {
		return err
	}
	return do(ctx, id, text, impact)
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) error {
	v, unlock, err := p.lockVolume(ctx, diskID)
	if err == nil {
		defer unlock()
		err = p.detachFrom(ctx, v, instanceID)
	}
	if err = classify(err); errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("detach disk %s from instance %s: %w", diskID, instanceID, err)
	}
	return nil
}

// detachFrom changes the definition last: until then nobody else gets the disk.
func (p *Provider) detachFrom(ctx context.Context, v *volume, id string) error {
	if !isID(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, detachWait)
	defer cancel()
	for {
		d, err := p.disksOf(ctx, id)
		if err != nil || d == nil {
			return err
		}
		name := d.live[v.path]
		if name == "" {
			if name = d.config[v.path]; name != "" {
				err = p.change(ctx, p.hv.detach, v, id, name, lv.DomainAffectConfig)
			}
			return err
		}
		// The call may return before the guest has let the disk go, or be refused since it has not.
		err = p.change(ctx, p.hv.detach, v, id, name, lv.DomainAffectLive)
		if err := errors.Join(poll.Sleep(ctx, detachPoll), err); ctx.Err() != nil {
			return err
		}
	}
}
