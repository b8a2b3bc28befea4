// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeDisks lays out a /sys/block and a /dev of plain files.
func fakeDisks(t *testing.T, content map[string][]byte, serial map[string]string) (sysBlock, dev string) {
	t.Helper()
	root := t.TempDir()
	sysBlock, dev = filepath.Join(root, "block"), filepath.Join(root, "dev")
	for name, data := range content {
		dir := filepath.Join(sysBlock, name)
		for _, d := range []string{dir, dev} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if s, ok := serial[name]; ok {
			if err := os.WriteFile(filepath.Join(dir, "serial"), []byte(s+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dev, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return sysBlock, dev
}

func isoImage(label string) []byte {
	b := make([]byte, 20*2048)
	copy(b[isoDescriptor:], "\x01CD001\x01")
	copy(b[isoDescriptor+isoLabel:], label+"                                "[:isoLabelLen-len(label)])
	return b
}

func ext4Image(label string) []byte {
	b := make([]byte, 1<<16)
	b[extSuper+extMagic], b[extSuper+extMagic+1] = 0x53, 0xef
	copy(b[extSuper+extLabel:], label)
	return b
}

func TestListDisksReadsLabelsAndSerials(t *testing.T) {
	sysBlock, dev := fakeDisks(t, map[string][]byte{
		"sr0":   isoImage("CIDATA"),
		"vda":   isoImage("other"),
		"vdb":   ext4Image("scratch"),
		"vdc":   []byte("short"),
		"vdd":   make([]byte, 1<<16),
		"loop0": isoImage("cidata"),
	}, map[string]string{"vda": "cidata", "vdc": "scratch"})
	got := listDisks(sysBlock, dev)
	for i := range got {
		got[i].dev = filepath.Base(got[i].dev)
	}
	want := []disk{
		{dev: "sr0", fstype: "iso9660", label: "CIDATA"},
		{dev: "vda", fstype: "iso9660", label: "other", serial: "cidata"},
		{dev: "vdb", fstype: "ext4", label: "scratch"},
		{dev: "vdc", serial: "scratch"},
		{dev: "vdd"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(disk{})); diff != "" {
		t.Error(diff)
	}
}

func TestWhichDiskIsWhat(t *testing.T) {
	for _, c := range []struct {
		d                    disk
		seed, drive, scratch bool
	}{
		{disk{fstype: "iso9660", label: "cidata"}, true, false, false},
		{disk{fstype: "iso9660", label: "CIDATA"}, true, false, false},
		{disk{fstype: "iso9660", label: "x", serial: "cidata"}, true, false, false},
		{disk{fstype: "iso9660", label: "debian"}, false, false, false},
		{disk{fstype: "iso9660", label: "config-2"}, false, true, false},
		{disk{fstype: "ext4", label: "config-2"}, false, false, false},
		{disk{serial: "cidata"}, false, false, false},
		{disk{fstype: "ext4", label: "scratch"}, false, false, true},
		{disk{fstype: "ext4", serial: "scratch"}, false, false, true},
		{disk{fstype: "ext4", label: "data"}, false, false, false},
	} {
		if c.d.isSeed() != c.seed || c.d.isConfigDrive() != c.drive || c.d.isScratch() != c.scratch {
			t.Errorf("%+v: seed %v, config drive %v, scratch %v; want %v, %v, %v", c.d, c.d.isSeed(), c.d.isConfigDrive(), c.d.isScratch(), c.seed, c.drive, c.scratch)
		}
	}
}

func TestBlankScratchDiskIsReported(t *testing.T) {
	if _, err := mountScratch([]disk{{dev: "/dev/vdz", serial: "scratch"}}); err == nil {
		t.Error("a scratch disk without file system was passed over in silence")
	}
	if found, err := mountScratch(nil); found || err != nil {
		t.Errorf("no disk: got %v, %v", found, err)
	}
}

// TestDisksOfPodsAreNotOurs: a pod's disk can have any label.
func TestDisksOfPodsAreNotOurs(t *testing.T) {
	pod := disk{dev: "/dev/sda", fstype: "ext4", label: "scratch"}
	ours := disk{dev: "/dev/vdb", serial: "scratch", fstype: "ext4", label: "scratch"}
	if got := withSerial([]disk{pod, ours}, "scratch"); len(got) != 1 || got[0] != ours {
		t.Errorf("scratch disks %v, want %v", got, ours)
	}
	// A provider that cannot set serial numbers.
	if got := withSerial([]disk{pod}, "scratch"); len(got) != 1 {
		t.Errorf("scratch disks %v, want %v", got, pod)
	}
}

// TestScratchDiskOfTheNode: an image whose pods do not trust the node uses nothing that a scratch disk has before the boot.
func TestScratchDiskOfTheNode(t *testing.T) {
	g := &guest{disks: []disk{{dev: "/dev/vdz", serial: "scratch", fstype: "ext4"}}}
	if err := g.findScratch(); err == nil {
		t.Error("a disk that is not there was mounted")
	}
	AlwaysEncryptScratch = true
	t.Cleanup(func() { AlwaysEncryptScratch = false })
	if err := g.findScratch(); err != nil {
		t.Errorf("it was to be mounted as it is: %v", err)
	}
}

// TestOnlyOurDiskIsErased: a pod's disk can have the label of a scratch disk, and no provider gives it the serial number.
func TestOnlyOurDiskIsErased(t *testing.T) {
	labelled := disk{dev: "/dev/sda", fstype: "ext4", label: "scratch"}
	for _, c := range []struct {
		disks    []disk
		dev, err string
	}{
		{nil, "", ""},
		{[]disk{{dev: "/dev/sda", fstype: "ext4", label: "data"}}, "", ""},
		{[]disk{labelled, {dev: "/dev/vdb", serial: "scratch"}}, "/dev/vdb", ""},
		{[]disk{labelled}, "", "/dev/sda has the label scratch"},
	} {
		dev, err := scratchToErase(c.disks)
		if dev != c.dev || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %q, %v", c.disks, dev, err)
		}
	}
}
