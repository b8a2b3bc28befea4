// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
)

// A disk is two volumes of the pool: its image, and a record, since volumes have no
// metadata. Who has it is in the domains alone. Both names follow from the key, so the
// daemon itself refuses a second disk of a key.

// kindDisk and kindSnapshot are what ids begin with. Names of others' volumes are ids too.
const (
	kindDisk     = "disk-"
	kindSnapshot = "snap-"
)

// idDigits leave an id the 20 characters that virtio has for a serial number.
const idDigits = 15

func volumeID(kind, key string) string {
	sum := sha256.Sum256([]byte(kind + key))
	return kind + hex.EncodeToString(sum[:])[:idDigits]
}

var ownVolumeID = regexp.MustCompile(`^(disk|snap)-[0-9a-f]{15}$`)

func imageFile(id string) string  { return volumePrefix + id + ".qcow2" }
func recordFile(id string) string { return volumePrefix + id + ".json" }

// diskRecord is what is written of a disk or a snapshot.
type diskRecord struct {
	Key          string            `json:"key"`
	Name         string            `json:"name,omitempty"`
	FromSnapshot string            `json:"fromSnapshot,omitempty"`
	FromDisk     string            `json:"fromDisk,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	Created      time.Time         `json:"created"`
	// Phase is phaseMaking or phaseReady; Maker is who makes it.
	Phase string `json:"phase"`
	Maker string `json:"maker"`
}

// volume is a disk, a snapshot, or a disk of somebody else's, whose record is empty.
type volume struct {
	diskRecord
	id, file, path, format string
	bytes                  int64
}

func (v *volume) disk(instanceID string) *provider.Disk {
	return &provider.Disk{
		ID: v.id, Key: v.Key, Bytes: v.bytes, FromSnapshot: v.FromSnapshot, FromDisk: v.FromDisk,
		InstanceID: instanceID, Tags: v.Tags, Created: v.Created,
	}
}

func (v *volume) snapshot() *provider.Snapshot {
	return &provider.Snapshot{ID: v.id, Key: v.Key, DiskID: v.FromDisk, Bytes: v.bytes, Ready: v.Phase == phaseReady, Tags: v.Tags, Created: v.Created}
}

// serial returns an own id, and of another's name as much as virtio has room for.
func (v *volume) serial() string {
	if v.Key != "" {
		return v.id
	}
	return volumeID("vol-", v.id)
}

// recordRoom is what the size of a record is a multiple of, so that another phase fits.
const recordRoom = 1 << 10

func (p *Provider) saveVolume(ctx context.Context, v *volume, phase string) error {
	v.Phase = phase
	data, err := json.Marshal(v.diskRecord)
	if err != nil {
		return err
	}
	pad := recordRoom - (len(data)+len(phaseMaking)-len(phase))%recordRoom
	return p.makeFile(ctx, p.cfg.Pool, recordFile(v.id), append(data, bytes.Repeat([]byte{' '}, pad+len(phaseMaking)-len(phase))...))
}

// loadVolume returns nil when there is no such volume. One whose image is not there yet has
// 0 bytes.
func (p *Provider) loadVolume(ctx context.Context, id string) (*volume, error) {
	v := &volume{id: id, file: imageFile(id)}
	if !ownVolumeID.MatchString(id) {
		v.file = id
		if v.Phase = phaseReady; isOwnVolume(id) || id == p.cfg.Volume || strings.ContainsAny(id, "/\x00") {
			return nil, nil
		}
	} else if found, err := p.readRecord(ctx, v); !found || err != nil {
		return nil, err
	}
	pool, err := p.poolNamed(ctx, p.cfg.Pool)
	if err != nil {
		return nil, err
	}
	image, err := p.volumeNamed(ctx, pool.name, v.file)
	switch {
	case isCode(err, lv.ErrNoStorageVol) && v.Key == "":
		return nil, nil
	case isCode(err, lv.ErrNoStorageVol):
		v.Phase = phaseMaking
	case err != nil:
		return nil, err
	default:
		v.bytes, v.format = int64(image.capacity), image.format
	}
	v.path = pool.path(v.file)
	return v, nil
}

// readRecord reports whether there is one: its maker may have been killed before it wrote.
func (p *Provider) readRecord(ctx context.Context, v *volume) (bool, error) {
	var data []byte
	err := whileBusy(ctx, func() (err error) {
		data, err = p.hv.download(ctx, p.cfg.Pool, recordFile(v.id), 0, 0)
		return err
	})
	if isCode(err, lv.ErrNoStorageVol) || err == nil && len(bytes.Trim(data, "\x00")) == 0 {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &v.diskRecord)
	}
	if err != nil {
		return false, fmt.Errorf("volume %s: %w", recordFile(v.id), err)
	}
	return true, nil
}

// existingVolume returns ErrNotFound for what is not of the kind. Others' are disks.
func (p *Provider) existingVolume(ctx context.Context, kind, id string) (*volume, error) {
	var v *volume
	var err error
	if strings.HasPrefix(id, kind) || kind == kindDisk && !strings.HasPrefix(id, kindSnapshot) {
		v, err = p.loadVolume(ctx, id)
	}
	if err == nil && v == nil {
		err = fmt.Errorf("%w: pool %s has no %s%q", provider.ErrNotFound, p.cfg.Pool, strings.Replace(kind, "-", " ", 1), id)
	}
	return v, err
}

// readyVolume returns ErrUnavailable for what is being made.
func (p *Provider) readyVolume(ctx context.Context, kind, id string) (*volume, error) {
	v, err := p.existingVolume(ctx, kind, id)
	if err == nil && v.Phase != phaseReady {
		err = fmt.Errorf("%w: %s is being made", provider.ErrUnavailable, id)
	}
	return v, err
}

// lockVolume returns a disk on which nobody of this process works.
func (p *Provider) lockVolume(ctx context.Context, id string) (v *volume, unlock func(), err error) {
	if unlock, err = p.locks.Take(ctx, id); err != nil {
		return nil, nil, err
	}
	if v, err = p.readyVolume(ctx, kindDisk, id); err != nil {
		unlock()
		return nil, nil, err
	}
	return v, unlock, nil
}

// matching returns what has all the tags of match.
func (p *Provider) matching(ctx context.Context, kind string, match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: list %ss: no tags to match", provider.ErrInvalidArgument, strings.TrimSuffix(kind, "-"))
	}
	files, err := p.hv.volumes(ctx, p.cfg.Pool)
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var list []*volume
	for _, file := range files {
		id := strings.TrimSuffix(strings.TrimPrefix(file, volumePrefix), ".json")
		if file != recordFile(id) || !strings.HasPrefix(id, kind) {
			continue
		}
		v, err := p.loadVolume(ctx, id)
		if err != nil {
			return nil, err
		}
		if v != nil && provider.HasTags(v.Tags, match) {
			list = append(list, v)
		}
	}
	return list, nil
}

// makeOnce returns the volume of a key, which it makes if there is none. That goes on when
// the caller's context ends, as the daemon does, and the next call waits for it.
func (p *Provider) makeOnce(ctx context.Context, kind, key string, spec provider.DiskSpec) (*volume, error) {
	if err := checkDisk(spec); err != nil && kind == kindDisk {
		return nil, err
	}
	id := volumeID(kind, key)
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return nil, err
	}
	return lifetime.Outlive(ctx, func() (*volume, error) {
		defer unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyLimit)
		defer cancel()
		return p.findOrFill(ctx, &volume{id: id, file: imageFile(id), diskRecord: diskRecord{
			Key: key, Name: spec.Name, FromSnapshot: spec.FromSnapshot, FromDisk: spec.FromDisk, Tags: maps.Clone(spec.Tags), Maker: p.maker,
		}}, spec)
	})
}

func (p *Provider) findOrFill(ctx context.Context, want *volume, spec provider.DiskSpec) (*volume, error) {
	v, err := p.loadVolume(ctx, want.id)
	if err == nil && v != nil && v.Phase != phaseReady && v.Maker != p.maker {
		v, err = p.awaitMaker(ctx, v)
	}
	if err != nil {
		return nil, err
	}
	if v == nil || v.Phase != phaseReady {
		if err := p.fillOrDrop(ctx, want, spec); err != nil {
			return nil, err
		}
		if v, err = p.readyVolume(ctx, want.id[:len(kindDisk)], want.id); err != nil {
			return nil, err
		}
	}
	if v.Key != want.Key || !spec.Fits(v.disk("")) {
		return nil, fmt.Errorf("%w: %s has the key %s, %d bytes, and is from snapshot %q, disk %q", provider.ErrAlreadyExists, v.id, v.Key, v.bytes, v.FromSnapshot, v.FromDisk)
	}
	return v, nil
}
