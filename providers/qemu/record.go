// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
)

// phase says how far the creation or deletion of an instance is.
type phase string

const (
	// phaseMaking means that only the record certainly exists.
	phaseMaking phase = "making"
	// phaseReady means that the instance is complete. It runs if its process does.
	phaseReady phase = "ready"
	// phaseDeleting means that parts of it may be gone.
	phaseDeleting phase = "deleting"
)

// record is instance.json.
type record struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	UUID    string            `json:"uuid"`
	Pod     string            `json:"pod"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created"`
	Phase   phase             `json:"phase"`

	CPUs    int64  `json:"cpus"`
	Memory  int64  `json:"memoryMiB"`
	Accel   string `json:"accel"`
	Boot    boot   `json:"boot"`
	Append  string `json:"append,omitempty"`
	Scratch int64  `json:"scratchGiB"`

	// Set once the network is attached.
	Interface string         `json:"interface,omitempty"`
	MAC       string         `json:"mac,omitempty"`
	Addrs     []netip.Prefix `json:"addrs,omitempty"`
	Gateways  []netip.Addr   `json:"gateways,omitempty"`
	MTU       int            `json:"mtu,omitempty"`

	// Template is the folder of the template from which it was restored.
	Template string `json:"template,omitempty"`
	// saving is set in the record of a template that is being made. It is not stored.
	saving bool
	// disks are the ids of the disks that QEMU starts with. They are not stored: each disk
	// says which instance has it.
	disks []string

	// Process is the QEMU that was started last.
	Process process `json:"process,omitzero"`
}

// process is a [procid.ID] as instance.json has it.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"bootID"`
}

// alive reports whether the instance's QEMU runs.
func (r *record) alive() bool { return procid.ID(r.Process).Alive() }

// boot is what a guest starts from: a kernel or a disk.
type boot struct {
	Kernel   string `json:"kernel,omitempty"`
	Initrd   string `json:"initrd,omitempty"`
	Disk     string `json:"disk,omitempty"`
	Firmware string `json:"firmware,omitempty"`
}

// instance returns the instance for a record.
func (r *record) instance() *provider.Instance {
	i := &provider.Instance{
		ID: r.ID, Name: r.ID, Key: r.Key, Tags: r.Tags, Created: r.Created, State: provider.StatePending,
	}
	// IPs[1] would be that of a second interface, so an IPv6 address of the first one is
	// left out.
	if len(r.Addrs) > 0 {
		i.IPs = []netip.Addr{r.Addrs[0].Addr()}
	}
	switch {
	case r.Phase == phaseDeleting:
		i.State = provider.StateDeleting
	case r.Phase == phaseReady && r.alive():
		i.State = provider.StateRunning
	case r.Phase == phaseReady:
		i.State = provider.StateStopped
	}
	return i
}

// store is the state folder.
type store struct{ dir string }

const recordName = "instance.json"

// Folders that begin with a dot are not instances: they are being made or removed.
const (
	newPrefix  = ".new-"
	gonePrefix = ".gone-"
)

func (s store) instances() string           { return filepath.Join(s.dir, "instances") }
func (s store) folder(id string) string     { return filepath.Join(s.instances(), id) }
func (s store) file(id, name string) string { return filepath.Join(s.folder(id), name) }

func (s store) lockPath(key string) string {
	return lockFile(s.dir, keyHash(key))
}

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

var instanceID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// load returns nil when there is no such instance.
func (s store) load(id string) (*record, error) {
	if !instanceID.MatchString(id) {
		return nil, nil
	}
	var r record
	err := statefile.Read(s.file(id, recordName), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", id, err)
	}
	return &r, nil
}

func (s store) save(r *record) error {
	return statefile.Write(s.file(r.ID, recordName), r)
}

// list returns all records that can be read, and an error for damaged ones.
func (s store) list() ([]*record, error) {
	entries, err := os.ReadDir(s.instances())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var records []*record
	var errs []error
	for _, entry := range entries {
		r, err := s.load(entry.Name())
		if r != nil {
			records = append(records, r)
		}
		errs = append(errs, err)
	}
	return records, errors.Join(errs...)
}

func (s store) byKey(key string) (*record, error) {
	records, err := s.list()
	for _, r := range records {
		if r.Key == key {
			return r, nil
		}
	}
	return nil, err
}

// maxSuffix bounds how many instances of one name there can be.
const maxSuffix = 1000

// claim stores r as a new instance and sets its ID: the name, or the name with a number
// if another instance has it. The record is written before its folder gets its name.
func (s store) claim(r *record, name string) error {
	staged := filepath.Join(s.instances(), newPrefix+keyHash(r.Key))
	if err := os.RemoveAll(staged); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := makeFolder(staged); err != nil {
		return fmt.Errorf("make instance folder: %w", err)
	}
	for n := range maxSuffix {
		r.ID = numbered(name, n)
		if err := statefile.Write(filepath.Join(staged, recordName), r); err != nil {
			return err
		}
		err := os.Rename(staged, s.folder(r.ID))
		if err == nil {
			return statefile.SyncFolder(s.instances())
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("name instance folder: %w", err)
		}
	}
	return fmt.Errorf("%w: %d instances are named %s", provider.ErrQuota, maxSuffix, name)
}

// makeFolder is MkdirAll while other processes may remove empty parents.
func makeFolder(path string) error {
	var err error
	for range 100 {
		if err = os.MkdirAll(path, 0o700); err == nil ||
			!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// numbered appends a number, from 2 on, to a name and keeps it within one DNS label.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	suffix := fmt.Sprintf("-%d", n+1)
	if room := 63 - len(suffix); len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	return name + suffix
}

// remove removes an instance by renaming its folder, and then its files.
func (s store) remove(id string) error {
	gone := filepath.Join(s.instances(), gonePrefix+id)
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := os.Rename(s.folder(id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove instance folder: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove instance folder: %w", err)
	}
	return nil
}

// tidy removes what killed processes left, and empty folders.
func (s store) tidy() {
	folders := []string{s.instances(), s.disks().dir(), s.snapshots().dir()}
	for _, dir := range folders {
		sweep(dir, s.dir)
	}
	empty := append(folders, filepath.Join(s.dir, "locks"), s.dir)
	if s.dir == DefaultConfig().StateDir {
		empty = append(empty, filepath.Dir(s.dir)) // ours as well
	}
	for _, dir := range empty {
		os.Remove(dir)
	}
}

// removeIfFree removes a folder if nobody holds its lock.
func removeIfFree(path, lockPath string) {
	lock, err := statefile.TryAcquire(lockPath)
	if lock == nil || err != nil {
		return
	}
	os.RemoveAll(path)
	lock.ReleaseAndRemove()
}
