// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/ovf/importer"
)

// testDisk is a disk that is not a multiple of anything.
func testDisk() []byte {
	return append(bytes.Repeat([]byte("disk"), 1<<18), make([]byte, 3<<20+512)...)
}

func testBuilder(t *testing.T) *builder {
	return &builder{Options: Options{Output: t.TempDir(), Log: t.Logf}, mtime: time.Unix(defaultEpoch, 0), work: t.TempDir(), gcpUnit: 8 << 20}
}

// qemuImg asks an implementation that is not ours.
func qemuImg(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("needs qemu-img; run apt-get install qemu-utils")
	}
	out, err := exec.Command("qemu-img", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func raw(t *testing.T, b *builder, disk []byte) string {
	t.Helper()
	name := filepath.Join(b.work, "want.raw")
	if err := os.WriteFile(name, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestVHD(t *testing.T) {
	b, disk := testBuilder(t), testDisk()
	var out bytes.Buffer
	if err := b.writeVHD(t.Context(), disk, &out); err != nil {
		t.Fatal(err)
	}
	if (out.Len()-512)%(1<<20) != 0 {
		t.Errorf("the disk in the VHD has %d bytes, no multiple of 1 MiB", out.Len()-512)
	}
	name := filepath.Join(b.work, "got.vhd")
	if err := os.WriteFile(name, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// vpc is QEMU's name of the format; compare says nothing about zeros at the
	// end of the larger one.
	qemuImg(t, "compare", "-f", "raw", "-F", "vpc", raw(t, b, disk), name)
	footer := out.Bytes()[out.Len()-512:]
	sum := binary.BigEndian.Uint32(footer[64:])
	binary.BigEndian.PutUint32(footer[64:], 0)
	if sum != vhdChecksum(footer) {
		t.Error("the checksum is wrong")
	}
}

// TestVHDGeometry has the sizes at which the specification's rules change.
func TestVHDGeometry(t *testing.T) {
	for sectors, want := range map[int64]string{
		2048:             "30/4/17",
		1 << 17:          "963/8/17",
		40 << 11:         "963/5/17",
		1 << 21:          "2080/16/63",
		127 << 21:        "65278/16/255",
		65535*16*255 + 1: "65535/16/255",
	} {
		c, h, s := vhdGeometry(sectors)
		if got := fmt.Sprintf("%d/%d/%d", c, h, s); got != want {
			t.Errorf("%d sectors: %s, want %s", sectors, got, want)
		}
	}
}

func TestGoogleTarball(t *testing.T) {
	b, disk := testBuilder(t), testDisk()
	var out, again bytes.Buffer
	for _, to := range []*bytes.Buffer{&out, &again} {
		if err := b.writeTarball(t.Context(), disk, to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two builds differ")
	}
	unpacked, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(unpacked)
	header, err := archive.Next()
	if err != nil || header.Name != "disk.raw" || header.Size != b.gcpUnit || header.Format != tar.FormatGNU {
		t.Fatalf("first entry %+v, %v", header, err)
	}
	head := make([]byte, len(disk))
	if _, err := io.ReadFull(archive, head); err != nil || !bytes.Equal(head, disk) {
		t.Errorf("the disk is another one: %v", err)
	}
	if _, err := archive.Next(); err != io.EOF {
		t.Errorf("after the disk: %v", err)
	}
}

func TestOVA(t *testing.T) {
	qemuImg(t, "--version")
	b, disk := testBuilder(t), testDisk()
	var out, again bytes.Buffer
	for _, to := range []*bytes.Buffer{&out, &again} {
		if err := b.writeOVA(t.Context(), disk, to); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two builds differ")
	}
	ova := filepath.Join(b.work, "podvm.ova")
	if err := os.WriteFile(ova, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	checkOVF(t, ova)

	files := map[string][]byte{}
	var names []string
	for archive := tar.NewReader(&out); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"podvm.ovf", "podvm.mf", vmdkFile}, names); diff != "" {
		t.Error(diff)
	}
	for line := range strings.Lines(string(files["podvm.mf"])) {
		var name, sum string
		if _, err := fmt.Sscanf(strings.NewReplacer("(", " ", ")=", "").Replace(line), "SHA256 %s %s", &name, &sum); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name])); got != sum {
			t.Errorf("the manifest says %s of %s, which has %s", sum, name, got)
		}
	}
	vmdk := filepath.Join(b.work, "got.vmdk")
	if err := os.WriteFile(vmdk, files[vmdkFile], 0o600); err != nil {
		t.Fatal(err)
	}
	qemuImg(t, "compare", "-f", "raw", "-F", "vmdk", raw(t, b, disk), vmdk)
}

// checkOVF reads the description with VMware's own library.
func checkOVF(t *testing.T, ova string) {
	t.Helper()
	archive := &importer.TapeArchive{Path: ova}
	description, err := importer.ReadOvf("*.ovf", archive)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := importer.ReadEnvelope(description)
	if err != nil {
		t.Fatal(err)
	}
	hardware := envelope.VirtualSystem.VirtualHardware[0]
	if len(hardware.Item) != 5 || len(envelope.Disk.Disks) != 1 || envelope.References[0].Href != vmdkFile {
		t.Errorf("description: %d items, %d disks, files %+v", len(hardware.Item), len(envelope.Disk.Disks), envelope.References)
	}
	if config := hardware.Config[0]; config.Key != "firmware" || config.Value != "efi" {
		t.Errorf("firmware: %+v", config)
	}
}
