// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/csisanity"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

// writeHead writes the first bytes of a disk with QEMU's own tool, which pads a sector.
func writeHead(t *testing.T, d *libvirtd.Daemon, id string, data []byte) error {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, append(data, make([]byte, 512-len(data))...), 0o600); err != nil {
		return err
	}
	return qemuTool("qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2", "--target-is-zero", file, d.Path("pool/"+imageFile(id)))
}

func readHead(t *testing.T, d *libvirtd.Daemon, id string, n int) ([]byte, error) {
	file := filepath.Join(t.TempDir(), "data")
	if err := qemuTool("qemu-img", "dd", "-f", "qcow2", "-O", "raw", "bs=512", "count=1", "if="+d.Path("pool/"+imageFile(id)), "of="+file); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	return data[:min(n, len(data))], err
}

func qemuTool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}

// foreign makes a volume of the pool that is not ours.
func foreign(t *testing.T, d *libvirtd.Daemon) conformance.Foreign {
	t.Helper()
	const name = "somebodys.qcow2"
	d.Virsh(t, "vol-create-as", libvirtd.Pool, name, "1M", "--format", "qcow2")
	return conformance.Foreign{DiskID: name, Remove: func() error {
		d.Virsh(t, "vol-delete", "--pool", libvirtd.Pool, name)
		return nil
	}}
}

// TestCSISanity attaches disks to a VM that runs.
func TestCSISanity(t *testing.T) {
	p := connect(t, testConfig(start(t, libvirtd.Options{})))
	node := create(t, p, "node")
	t.Cleanup(func() { remove(t, p, node.ID) })
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID, Zone: node.Zone})
}

// TestUserOfDisksKilledAtAnyInstant: the next one goes on, or begins again.
func TestUserOfDisksKilledAtAnyInstant(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	p.makerWait = 200 * time.Millisecond // the victim is dead
	node := create(t, p, "node")
	for round := range tier.Rounds(t, 3, 16) {
		killAfter(t, other(d, asDiskVictim, d.URI), time.Duration(40+round*97)*time.Millisecond)
		if err := diskLife(t.Context(), p, node.ID); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if volumes := d.Virsh(t, "vol-list", libvirtd.Pool); strings.Contains(volumes, volumePrefix+kindDisk) || strings.Contains(volumes, volumePrefix+kindSnapshot) {
			t.Errorf("round %d: volumes are left:\n%s", round, volumes)
		}
		if text := d.Virsh(t, "domblklist", node.ID); strings.Contains(text, volumePrefix+kindDisk) {
			t.Errorf("round %d: disks are left:\n%s", round, text)
		}
	}
	remove(t, p, node.ID)
}

func createDisk(t *testing.T, p *Provider, key string, spec provider.DiskSpec) *provider.Disk {
	t.Helper()
	spec.Tags = ownDisk
	d, err := p.CreateDisk(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeleteDisk(context.Background(), d.ID); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestQEMUKeepsAnImageToOne: a domain that was started with a disk of another is refused
// by QEMU's lock, whatever the definitions say.
func TestQEMUKeepsAnImageToOne(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	a, b := create(t, p, "a"), create(t, p, "b")
	t.Cleanup(func() { remove(t, p, a.ID); remove(t, p, b.ID) })
	disk := createDisk(t, p, "d", provider.DiskSpec{Bytes: 1 << 20})
	t.Cleanup(func() { remove(t, p, a.ID) })
	if _, err := p.AttachDisk(t.Context(), disk.ID, a.ID); err != nil {
		t.Fatal(err)
	}
	v, err := p.loadVolume(t.Context(), disk.ID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := v.deviceXML("sdz")
	if err != nil {
		t.Fatal(err)
	}
	if err := classify(p.hv.attach(t.Context(), b.ID, text, 1)); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("attached to a second domain: %v", err)
	}
}
