// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

// volume is disk.json or snapshot.json: the record of a disk or a snapshot. Its image
// is beside it.
type volume struct {
	ID   string `json:"id"`
	Key  string `json:"key"`
	Name string `json:"name,omitempty"`
	// Bytes is the size of the image. A disk whose image is larger was being resized by
	// a process that was killed.
	Bytes int64 `json:"bytes"`
	// FromSnapshot and FromDisk are what it is a copy of; a snapshot has FromDisk.
	FromSnapshot string            `json:"fromSnapshot,omitempty"`
	FromDisk     string            `json:"fromDisk,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	Created      time.Time         `json:"created"`
	// Phase is phaseMaking or phaseReady.
	Phase phase `json:"phase"`
	// Instance is the instance that has the disk. It is set before QEMU is asked to
	// attach it, and removed when QEMU has let it go.
	Instance string `json:"instance,omitempty"`
}

func (v *volume) disk() *provider.Disk {
	return &provider.Disk{
		ID: v.ID, Key: v.Key, Bytes: v.Bytes, FromSnapshot: v.FromSnapshot, FromDisk: v.FromDisk,
		InstanceID: v.Instance, Tags: v.Tags, Created: v.Created,
	}
}

func (v *volume) snapshot() *provider.Snapshot {
	return &provider.Snapshot{
		ID: v.ID, Key: v.Key, DiskID: v.FromDisk, Bytes: v.Bytes, Ready: v.Phase == phaseReady,
		Tags: v.Tags, Created: v.Created,
	}
}

// shelf is the folder of all disks, or of all snapshots.
type shelf struct {
	// state is the state folder, and kind is disk or snapshot.
	state, kind string
}

func (s store) disks() shelf     { return shelf{s.dir, "disk"} }
func (s store) snapshots() shelf { return shelf{s.dir, "snapshot"} }

const imageName = "image.raw"

func (s shelf) dir() string                { return filepath.Join(s.state, s.kind+"s") }
func (s shelf) folder(id string) string    { return filepath.Join(s.dir(), id) }
func (s shelf) image(id string) string     { return filepath.Join(s.folder(id), imageName) }
func (s shelf) record(id string) string    { return filepath.Join(s.folder(id), s.kind+".json") }
func (s shelf) hash(key string) string     { return keyHash(s.kind + "/" + key) } // no key has a slash
func (s shelf) lockPath(key string) string { return lockFile(s.state, s.hash(key)) }

func lockFile(state, hash string) string { return filepath.Join(state, "locks", hash+".lock") }

// volumeID is what newID makes. It is the serial number of a disk too: those of
// SCSI and virtio disks have at most 20 characters.
var volumeID = regexp.MustCompile(`^(disk|snap)-[0-9a-f]{15}$`)

func (s shelf) newID() string {
	random := make([]byte, 8)
	rand.Read(random)
	return s.kind[:4] + "-" + hex.EncodeToString(random)[:15]
}

// load returns nil when there is no such volume.
func (s shelf) load(id string) (*volume, error) {
	if !volumeID.MatchString(id) {
		return nil, nil
	}
	var v volume
	err := statefile.Read(s.record(id), &v)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", s.kind, id, err)
	}
	return &v, nil
}

// existing returns ErrNotFound when there is no such volume.
func (s shelf) existing(id string) (*volume, error) {
	v, err := s.load(id)
	if err == nil && v == nil {
		err = fmt.Errorf("%w: no %s %q in %s", provider.ErrNotFound, s.kind, id, s.state)
	}
	return v, err
}

// ready returns ErrUnavailable for a volume that is being made.
func (s shelf) ready(id string) (*volume, error) {
	v, err := s.existing(id)
	if err == nil && v.Phase != phaseReady {
		err = fmt.Errorf("%w: %s %s is being made", provider.ErrUnavailable, s.kind, id)
	}
	return v, err
}

func (s shelf) save(v *volume) error { return statefile.Write(s.record(v.ID), v) }

// list returns all records that can be read, and an error for damaged ones.
func (s shelf) list() ([]*volume, error) {
	entries, err := os.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", s.kind, err)
	}
	var volumes []*volume
	var errs []error
	for _, entry := range entries {
		v, err := s.load(entry.Name())
		if v != nil {
			volumes = append(volumes, v)
		}
		errs = append(errs, err)
	}
	return volumes, errors.Join(errs...)
}

// matching returns the volumes whose tags include all of match.
func (s shelf) matching(match map[string]string) ([]*volume, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: list %ss: no tags to match", provider.ErrInvalidArgument, s.kind)
	}
	all, err := s.list()
	if err != nil {
		return nil, classify(err)
	}
	var list []*volume
	for _, v := range all {
		if provider.HasTags(v.Tags, match) {
			list = append(list, v)
		}
	}
	return list, nil
}

func (s shelf) byKey(key string) (*volume, error) {
	volumes, err := s.list()
	for _, v := range volumes {
		if v.Key == key {
			return v, nil
		}
	}
	return nil, err
}

// claim stores v as a new volume and sets its ID. The record is durable before its
// folder gets its name.
func (s shelf) claim(v *volume) error {
	staged := filepath.Join(s.dir(), newPrefix+s.hash(v.Key))
	if err := os.RemoveAll(staged); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := makeFolder(staged); err != nil {
		return fmt.Errorf("make %s folder: %w", s.kind, err)
	}
	v.ID = s.newID()
	if err := statefile.Write(filepath.Join(staged, filepath.Base(s.record(v.ID))), v); err != nil {
		return err
	}
	if err := os.Rename(staged, s.folder(v.ID)); err != nil {
		return fmt.Errorf("name %s folder: %w", s.kind, err)
	}
	return errors.Join(statefile.SyncFolder(s.dir()), statefile.SyncFolder(s.state))
}

// remove removes a volume by renaming its folder, and then its files.
func (s shelf) remove(id string) error {
	gone := filepath.Join(s.dir(), gonePrefix+id)
	if err := os.Rename(s.folder(id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s folder: %w", s.kind, err)
	}
	// Else a power cut could bring back the name without the image.
	if err := statefile.SyncFolder(s.dir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove %s folder: %w", s.kind, err)
	}
	return nil
}

// sweep removes from a folder of instances, disks or snapshots what killed processes left.
func sweep(dir, state string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), gonePrefix) {
			os.RemoveAll(path)
		}
		if hash, ok := strings.CutPrefix(entry.Name(), newPrefix); ok {
			removeIfFree(path, lockFile(state, hash))
		}
	}
}
