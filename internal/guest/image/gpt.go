// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"hash/crc32"
	"unicode/utf16"
)

// Layout of a GUID partition table (UEFI specification 2.10, chapter 5).
const (
	gptEntries      = 128
	gptEntrySize    = 128
	gptTableSectors = gptEntries * gptEntrySize / sectorSize
	gptHeaderSize   = 92
	// partitionStart is 1 MiB, as every partitioning program aligns.
	partitionStart = 2048
)

// GUIDs in the mixed-endian form they have on disk. The disk's and the
// partition's are fixed: the disk is an image, copied as a whole.
var (
	guidESP       = [16]byte{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b}
	guidDisk      = [16]byte{0x4f, 0x75, 0x74, 0x72, 0x69, 0x67, 0x47, 0x4f, 0x80, 0x72, 0x70, 0x6f, 0x64, 0x76, 0x6d, 0x01}
	guidPartition = [16]byte{0x4f, 0x75, 0x74, 0x72, 0x69, 0x67, 0x47, 0x4f, 0x80, 0x72, 0x70, 0x6f, 0x64, 0x76, 0x6d, 0x02}
)

// buildDisk makes a disk with one partition, an EFI system partition.
func buildDisk(esp []byte) []byte {
	last := partitionStart + alignUp(len(esp), sectorSize)/sectorSize - 1
	// The backup table follows; the end is a whole MiB, which some clouds ask for.
	total := alignUp(last+1+gptTableSectors+1, 1<<20/sectorSize)
	disk := make([]byte, total*sectorSize)
	copy(disk[partitionStart*sectorSize:], esp)
	copy(disk, protectiveMBR(uint32(total-1)))
	table := gptTable(partitionStart, uint64(last))
	copy(disk[2*sectorSize:], table)
	copy(disk[(total-1-gptTableSectors)*sectorSize:], table)
	copy(disk[sectorSize:], gptHeader(table, 1, uint64(total-1), 2, uint64(total)))
	copy(disk[(total-1)*sectorSize:], gptHeader(table, uint64(total-1), 1, uint64(total-1-gptTableSectors), uint64(total)))
	return disk
}

func protectiveMBR(sectors uint32) []byte {
	b := make([]byte, sectorSize)
	copy(b[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(b[458:], sectors)
	b[510], b[511] = 0x55, 0xaa
	return b
}

func gptTable(first, last uint64) []byte {
	b := make([]byte, gptEntries*gptEntrySize)
	copy(b, guidESP[:])
	copy(b[16:], guidPartition[:])
	binary.LittleEndian.PutUint64(b[32:], first)
	binary.LittleEndian.PutUint64(b[40:], last)
	for i, c := range utf16.Encode([]rune("EFI system partition")) {
		binary.LittleEndian.PutUint16(b[56+2*i:], c)
	}
	return b
}

func gptHeader(table []byte, self, other, tableAt, total uint64) []byte {
	b := make([]byte, sectorSize)
	le := binary.LittleEndian
	copy(b, "EFI PART\x00\x00\x01\x00")
	le.PutUint32(b[12:], gptHeaderSize)
	le.PutUint64(b[24:], self)
	le.PutUint64(b[32:], other)
	le.PutUint64(b[40:], 2+gptTableSectors)
	le.PutUint64(b[48:], total-2-gptTableSectors)
	copy(b[56:], guidDisk[:])
	le.PutUint64(b[72:], tableAt)
	le.PutUint32(b[80:], gptEntries)
	le.PutUint32(b[84:], gptEntrySize)
	le.PutUint32(b[88:], crc32.ChecksumIEEE(table))
	le.PutUint32(b[16:], crc32.ChecksumIEEE(b[:gptHeaderSize]))
	return b
}
