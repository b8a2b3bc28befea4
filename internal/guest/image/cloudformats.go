// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	definition "github.com/outrigger/outrigger/images/podvm"
)

// Files of the formats that clouds take.
const (
	vhdFile     = "podvm.vhd"
	tarballFile = "podvm.tar.gz"
	ovaFile     = "podvm.ova"
)

// cloudFormats writes the same disk in the format that each cloud imports.
func (b *builder) cloudFormats(ctx context.Context, disk []byte) error {
	for _, f := range []struct {
		format, file string
		write        func(context.Context, []byte, io.Writer) error
	}{
		{FormatVHD, vhdFile, b.writeVHD},
		{FormatGCP, tarballFile, b.writeTarball},
		{FormatOVA, ovaFile, b.writeOVA},
	} {
		if !b.wants(f.format) {
			continue
		}
		if err := b.streamResult(f.file, func(out io.Writer) error { return f.write(ctx, disk, out) }); err != nil {
			return fmt.Errorf("%s: %w", f.format, err)
		}
	}
	return nil
}

// gcpDiskUnit is what the size of an imported disk must be a multiple of, and
// gcpDiskName its name in the archive (Google's page "Import boot disk images
// manually").
const (
	gcpDiskUnit = 1 << 30
	gcpDiskName = "disk.raw"
)

// writeTarball writes the format of Compute Engine: a GNU tar archive of one raw disk.
func (b *builder) writeTarball(_ context.Context, disk []byte, out io.Writer) error {
	packed, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // mostly zeros
	if err != nil {
		return err
	}
	size := alignUp(int64(len(disk)), b.gcpUnit)
	archive := tar.NewWriter(packed)
	err = archive.WriteHeader(&tar.Header{Format: tar.FormatGNU, Name: gcpDiskName, Mode: 0o644, Size: size, ModTime: b.mtime})
	if err != nil {
		return err
	}
	if _, err := io.Copy(archive, padded(disk, size)); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return packed.Close()
}

// padded reads the disk and zeros up to size.
func padded(disk []byte, size int64) io.Reader {
	return io.MultiReader(bytes.NewReader(disk), io.LimitReader(zeros{}, size-int64(len(disk))))
}

// zeros reads as a hole does.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

const vmdkFile = "podvm-disk1.vmdk"

// writeOVA writes the format of vSphere: a tar archive of a description, checksums and
// a compressed disk, in this order (DMTF DSP0243, section 5.3).
func (b *builder) writeOVA(ctx context.Context, disk []byte, out io.Writer) error {
	vmdk, err := b.convert(ctx, disk, "vmdk", "-o", "subformat=streamOptimized,adapter_type=lsilogic")
	if err == nil {
		err = setContentID(vmdk, sha256.Sum256(disk))
	}
	if err != nil {
		return err
	}
	description := fmt.Appendf(nil, definition.OVF, vmdkFile, len(vmdk), len(disk))
	manifest := fmt.Sprintf("SHA256(podvm.ovf)= %x\nSHA256(%s)= %x\n", sha256.Sum256(description), vmdkFile, sha256.Sum256(vmdk))
	archive := tar.NewWriter(out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"podvm.ovf", description}, {"podvm.mf", []byte(manifest)}, {vmdkFile, vmdk}} {
		err := archive.WriteHeader(&tar.Header{Format: tar.FormatUSTAR, Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: b.mtime})
		if err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// contentID is the number that qemu-img draws for each VMDK, which would make
// two builds differ.
var contentID = regexp.MustCompile(`\nCID=[0-9a-f]{1,8}\n`)

// vmdkDescriptor is where the description of a VMDK begins, and vmdkRoom how
// long it can be (VMware's "Virtual Disk Format 5.0": sector 1, and what
// qemu-img leaves for it).
const (
	vmdkDescriptor = sectorSize
	vmdkRoom       = 20 * sectorSize
)

// convert returns the disk in a format of qemu-img: with one coroutine and no
// out-of-order writes, so that the same input gives the same file.
func (b *builder) convert(ctx context.Context, disk []byte, format string, options ...string) ([]byte, error) {
	raw, out := filepath.Join(b.work, "disk.raw"), filepath.Join(b.work, "disk."+format)
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"convert", "-m", "1", "-f", "raw", "-O", format}, options...)
	if _, err := runTool(ctx, "", "qemu-utils", "qemu-img", append(args, raw, out)...); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// setContentID makes the content id of a VMDK that of its content.
func setContentID(vmdk []byte, sum [sha256.Size]byte) error {
	if len(vmdk) < vmdkDescriptor+vmdkRoom {
		return errors.New("qemu-img wrote a VMDK that is too short")
	}
	area := vmdk[vmdkDescriptor : vmdkDescriptor+vmdkRoom]
	text, _, _ := bytes.Cut(area, []byte{0})
	if !contentID.Match(text) {
		return errors.New("qemu-img wrote a VMDK without content id")
	}
	text = contentID.ReplaceAll(text, fmt.Appendf(nil, "\nCID=%x\n", sum[:4]))
	if len(text) > len(area) {
		return errors.New("qemu-img wrote a VMDK whose description leaves no room")
	}
	clear(area[copy(area, text):])
	return nil
}

// vhdUnit is what Azure wants the size of a disk to be a multiple of ("Prepare
// a Windows VHD to upload to Azure", on sizes).
const vhdUnit = 1 << 20

// vhdFooter ends a fixed disk ("Virtual Hard Disk Image Format Specification"
// 1.0, Microsoft, October 2006); big-endian.
type vhdFooter struct {
	Cookie         [8]byte
	Features       uint32
	FormatVersion  uint32
	DataOffset     uint64
	Time           uint32 // seconds since 2000
	CreatorApp     [4]byte
	CreatorVersion uint32
	CreatorHost    [4]byte
	OriginalSize   uint64
	CurrentSize    uint64
	Cylinders      uint16
	Heads, Sectors uint8
	DiskType       uint32
	Checksum       uint32
	UniqueID       [16]byte
	SavedState     uint8
	_              [427]byte
}

const (
	vhdReserved = 2 // a bit of Features that is always set
	vhdVersion  = 1 << 16
	vhdFixed    = 2
	vhdNoOffset = 1<<64 - 1
)

// writeVHD writes the format of Azure: the disk and a footer, of a fixed size.
func (b *builder) writeVHD(_ context.Context, disk []byte, out io.Writer) error {
	size := alignUp(int64(len(disk)), vhdUnit)
	if _, err := io.Copy(out, padded(disk, size)); err != nil {
		return err
	}
	_, err := out.Write(newVHDFooter(size, sha256.Sum256(disk), b.mtime))
	return err
}

func newVHDFooter(size int64, sum [sha256.Size]byte, made time.Time) []byte {
	f := vhdFooter{
		Cookie: [8]byte([]byte("conectix")), Features: vhdReserved, FormatVersion: vhdVersion, DataOffset: vhdNoOffset,
		Time:       uint32(made.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Second),
		CreatorApp: [4]byte([]byte("otrg")), CreatorVersion: vhdVersion, CreatorHost: [4]byte([]byte("Wi2k")),
		OriginalSize: uint64(size), CurrentSize: uint64(size), DiskType: vhdFixed, UniqueID: [16]byte(sum[:16]),
	}
	f.Cylinders, f.Heads, f.Sectors = vhdGeometry(size / sectorSize)
	f.Checksum = vhdChecksum(encodeVHD(f))
	return encodeVHD(f)
}

func encodeVHD(f vhdFooter) []byte {
	data, _ := binary.Append(nil, binary.BigEndian, f) // a struct of fixed size cannot fail
	return data
}

// vhdChecksum returns the one's complement of the sum of all bytes, with the checksum
// itself as zero.
func vhdChecksum(footer []byte) uint32 {
	var sum uint32
	for _, b := range footer {
		sum += uint32(b)
	}
	return ^sum
}

// vhdGeometry follows the specification's appendix, "CHS Calculation".
func vhdGeometry(sectors int64) (cylinders uint16, heads, perTrack uint8) {
	sectors = min(sectors, 65535*16*255)
	if sectors >= 65535*16*63 {
		return uint16(sectors / 255 / 16), 16, 255
	}
	track, tracks := int64(17), sectors/17
	h := max((tracks+1023)/1024, 4)
	if tracks >= h*1024 || h > 16 {
		track, h = 31, 16
		tracks = sectors / track
	}
	if tracks >= h*1024 {
		track, h = 63, 16
		tracks = sectors / track
	}
	return uint16(tracks / h), uint8(h), uint8(track)
}
