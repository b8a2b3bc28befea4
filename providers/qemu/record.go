// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"net/netip"
	"os"
	"path/filepath"
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
	TPM     bool   `json:"tpm,omitempty"`

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

// boot is what a guest starts from: a kernel and an initramfs; or by UEFI, with Firmware, a disk or a kernel that is a
// unified kernel image.
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

// names lets a shelf read and write what a record is called.
func (r *record) names() (id, key *string) { return &r.ID, &r.Key }

// store is the state folder.
type store struct{ dir string }

func (s store) instances() records[*record] { return records[*record]{shelf{s.dir, "instance"}} }
func (s store) disks() records[*volume]     { return records[*volume]{shelf{s.dir, "disk"}} }
func (s store) snapshots() records[*volume] { return records[*volume]{shelf{s.dir, "snapshot"}} }

func (s store) folder(id string) string     { return s.instances().folder(id) }
func (s store) file(id, name string) string { return filepath.Join(s.folder(id), name) }

// tidy removes what killed processes left, and empty folders.
func (s store) tidy() {
	folders := []string{s.instances().dir(), s.disks().dir(), s.snapshots().dir()}
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

// removeIfFree removes a folder if nobody holds its lock.
func removeIfFree(path, lockPath string) {
	lock, err := statefile.TryAcquire(lockPath)
	if lock == nil || err != nil {
		return
	}
	os.RemoveAll(path)
	lock.ReleaseAndRemove()
}
