// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"
)

// readFAT follows a path through a FAT32 volume by its tables only.
func readFAT(t *testing.T, vol []byte, path string) []byte {
	t.Helper()
	le := binary.LittleEndian
	reserved, copies, fatSectors := int(le.Uint16(vol[14:])), int(vol[16]), int(le.Uint32(vol[36:]))
	clusterSize := int(vol[13]) * sectorSize
	dataStart := (reserved + copies*fatSectors) * sectorSize
	if clusters := (int(le.Uint32(vol[32:]))*sectorSize - dataStart) / clusterSize; clusters < fatMinClusters {
		t.Fatalf("%d clusters: firmware would take it for FAT16", clusters)
	}
	chain := func(c uint32) (data []byte) {
		for c < 0x0ffffff8 {
			at := dataStart + int(c-2)*clusterSize
			data = append(data, vol[at:at+clusterSize]...)
			c = le.Uint32(vol[reserved*sectorSize+int(c)*4:]) & 0x0fffffff
		}
		return data
	}
	data := chain(le.Uint32(vol[44:]))
	for _, name := range strings.Split(path, "/") {
		short, err := shortName(name)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(data, []byte(short))
		if at < 0 || at%fatEntrySize != 0 {
			t.Fatalf("no %s in %q", name, data[:128])
		}
		e := data[at:]
		data = chain(uint32(le.Uint16(e[20:]))<<16 | uint32(le.Uint16(e[26:])))
		if e[11]&fatDirectory == 0 {
			data = data[:le.Uint32(e[28:])]
		}
	}
	return data
}

func TestESPHoldsTheProgram(t *testing.T) {
	for _, size := range []int{0, 1, fatClusterSize, 3*fatClusterSize + 17, 40 << 20} {
		content := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		esp, err := buildESP(efiBootPath, content, time.Unix(defaultEpoch, 0), partitionStart)
		if err != nil {
			t.Fatal(err)
		}
		if got := readFAT(t, esp, efiBootPath); !bytes.Equal(got, content) {
			t.Errorf("%d bytes read back, want %d equal ones", len(got), size)
		}
		if !bytes.Equal(esp[:sectorSize], esp[6*sectorSize:7*sectorSize]) {
			t.Error("the backup boot sector differs")
		}
	}
}

func TestESPRefusesLongNames(t *testing.T) {
	if _, err := buildESP("EFI/BOOT/bootx64.efi", nil, time.Unix(0, 0), 0); err == nil {
		t.Error("a lower-case name was accepted")
	}
}

func TestDiskHasBothPartitionTables(t *testing.T) {
	esp := bytes.Repeat([]byte{7}, 3<<20)
	disk := buildDisk(esp)
	if len(disk)%(1<<20) != 0 {
		t.Errorf("disk of %d bytes is not whole MiB", len(disk))
	}
	total := uint64(len(disk) / sectorSize)
	for _, at := range []uint64{1, total - 1} {
		checkGPTHeader(t, disk, at, total)
	}
	if !bytes.Equal(disk[partitionStart*sectorSize:][:len(esp)], esp) {
		t.Error("the partition's content differs")
	}
	if disk[450] != 0xee || disk[510] != 0x55 || disk[511] != 0xaa {
		t.Error("no protective MBR")
	}
}

func checkGPTHeader(t *testing.T, disk []byte, at, total uint64) {
	t.Helper()
	le := binary.LittleEndian
	h := append([]byte(nil), disk[at*sectorSize:][:gptHeaderSize]...)
	sum := le.Uint32(h[16:])
	clear(h[16:20])
	if string(h[:8]) != "EFI PART" || crc32.ChecksumIEEE(h) != sum || le.Uint64(h[24:]) != at {
		t.Fatalf("bad header at sector %d", at)
	}
	table := disk[le.Uint64(h[72:])*sectorSize:][:gptEntries*gptEntrySize]
	if crc32.ChecksumIEEE(table) != le.Uint32(h[88:]) {
		t.Errorf("bad table checksum in the header at sector %d", at)
	}
	first, last := le.Uint64(table[32:]), le.Uint64(table[40:])
	if first != partitionStart || last > le.Uint64(h[48:]) || le.Uint64(h[48:]) >= total-1 {
		t.Errorf("partition [%d,%d] outside the usable sectors up to %d of %d", first, last, le.Uint64(h[48:]), total)
	}
}
