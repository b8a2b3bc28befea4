// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"
)

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
