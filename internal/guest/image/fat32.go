// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Layout of the FAT32 volume (Microsoft FAT specification 1.03, "fatgen103").
const (
	fatReserved       = 32
	fatCopies         = 2
	fatClusterSectors = 1
	fatClusterSize    = fatClusterSectors * sectorSize
	fatMinClusters    = 65525 // fewer would make it FAT16
	fatEndOfChain     = 0x0fffffff
	fatMedia          = 0xf8
	fatDirectory      = 0x10
	fatArchive        = 0x20
	fatEntrySize      = 32
	fatVolumeID       = 0x4f545256
)

// buildESP makes an EFI system partition, a FAT32 volume, that holds one file at a path
// like EFI/BOOT/BOOTX64.EFI. hidden is the number of sectors before the partition.
func buildESP(path string, content []byte, mtime time.Time, hidden uint32) ([]byte, error) {
	// Clusters count from 2. The first is the root folder's; each other folder has one too,
	// and the file has the rest.
	parts := strings.Split(path, "/")
	fat := []uint32{0x0fffff00 | fatMedia, fatEndOfChain}
	for range parts {
		fat = append(fat, fatEndOfChain)
	}
	file := uint32(len(fat))
	for n := alignUp(len(content), fatClusterSize) / fatClusterSize; n > 1; n-- {
		fat = append(fat, uint32(len(fat))+1)
	}
	fat = append(fat, fatEndOfChain)
	data := make([]byte, (len(fat)-2)*fatClusterSize)
	copy(data[len(parts)*fatClusterSize:], content)
	for i, name := range parts {
		short, err := shortName(name)
		if err != nil {
			return nil, err
		}
		folder, next := data[i*fatClusterSize:], uint32(i+3)
		if i > 0 {
			parent := next - 2
			if i == 1 {
				parent = 0 // how the specification calls the root
			}
			fatEntry(folder, ".          ", fatDirectory, next-1, 0, mtime)
			fatEntry(folder[fatEntrySize:], "..         ", fatDirectory, parent, 0, mtime)
			folder = folder[2*fatEntrySize:]
		}
		if next < file {
			fatEntry(folder, short, fatDirectory, next, 0, mtime)
		} else {
			fatEntry(folder, short, fatArchive, file, len(content), mtime)
		}
	}
	return fatImage(fat, data, hidden), nil
}

func fatEntry(b []byte, short string, attr byte, cluster uint32, size int, mtime time.Time) {
	stamp := fatTime(mtime)
	copy(b, short)
	b[11] = attr
	copy(b[14:], stamp[:])  // created
	copy(b[18:], stamp[2:]) // last read
	copy(b[22:], stamp[:])  // written
	binary.LittleEndian.PutUint16(b[20:], uint16(cluster>>16))
	binary.LittleEndian.PutUint16(b[26:], uint16(cluster))
	binary.LittleEndian.PutUint32(b[28:], uint32(size))
}

// fatImage puts boot sectors and tables before the data.
func fatImage(fat []uint32, data []byte, hidden uint32) []byte {
	clusters := max(len(fat)-2, fatMinClusters+1)
	fatSectors := alignUp((clusters+2)*4, sectorSize) / sectorSize
	dataStart := fatReserved + fatCopies*fatSectors
	total := dataStart + clusters*fatClusterSectors
	img := make([]byte, total*sectorSize)
	boot := fatBootSector(uint32(total), uint32(fatSectors), hidden)
	info := fatInfoSector(uint32(clusters-(len(fat)-2)), uint32(len(fat)))
	for _, at := range []int{0, 6} { // the second is the backup
		copy(img[at*sectorSize:], boot)
		copy(img[(at+1)*sectorSize:], info)
	}
	for c := range fatCopies {
		table := img[(fatReserved+c*fatSectors)*sectorSize:]
		for i, e := range fat {
			binary.LittleEndian.PutUint32(table[i*4:], e)
		}
	}
	copy(img[dataStart*sectorSize:], data)
	return img
}

func fatBootSector(total, fatSectors, hidden uint32) []byte {
	b := make([]byte, sectorSize)
	le := binary.LittleEndian
	copy(b, "\xeb\x58\x90OUTRIGGR")
	le.PutUint16(b[11:], sectorSize)
	b[13] = fatClusterSectors
	le.PutUint16(b[14:], fatReserved)
	b[16] = fatCopies
	b[21] = fatMedia
	le.PutUint16(b[24:], 32) // sectors per track, heads: unused by firmware
	le.PutUint16(b[26:], 64)
	le.PutUint32(b[28:], hidden)
	le.PutUint32(b[32:], total)
	le.PutUint32(b[36:], fatSectors)
	le.PutUint32(b[44:], 2) // root folder
	le.PutUint16(b[48:], 1) // information sector
	le.PutUint16(b[50:], 6) // backup boot sector
	b[64] = 0x80
	b[66] = 0x29
	le.PutUint32(b[67:], fatVolumeID)
	copy(b[71:], "NO NAME    FAT32   ")
	b[510], b[511] = 0x55, 0xaa
	return b
}

func fatInfoSector(free, next uint32) []byte {
	b := make([]byte, sectorSize)
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0x41615252)
	le.PutUint32(b[484:], 0x61417272)
	le.PutUint32(b[488:], free)
	le.PutUint32(b[492:], next)
	le.PutUint32(b[508:], 0xaa550000)
	return b
}

// shortName returns the 11-byte form of an upper-case 8.3 name.
func shortName(name string) (string, error) {
	base, ext, _ := strings.Cut(name, ".")
	if base == "" || len(base) > 8 || len(ext) > 3 || name != strings.ToUpper(name) {
		return "", errors.New(name + " is not an upper-case 8.3 name")
	}
	return fmt.Sprintf("%-8s%-3s", base, ext), nil
}

// fatTime returns time and date in the format of FAT: in UTC, with a precision of two
// seconds.
func fatTime(t time.Time) [4]byte {
	t = t.UTC()
	var b [4]byte
	binary.LittleEndian.PutUint16(b[:], uint16(t.Hour()<<11|t.Minute()<<5|t.Second()/2))
	binary.LittleEndian.PutUint16(b[2:], uint16(max(t.Year()-1980, 0)<<9|int(t.Month())<<5|t.Day()))
	return b
}
