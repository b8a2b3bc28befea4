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

// fatVolume writes a FAT32 volume with 8.3 names front to back: every file and
// folder is one run of clusters.
type fatVolume struct {
	fat   []uint32
	data  []byte // from cluster 2 on
	stamp [4]byte
}

// buildESP makes an EFI system partition that holds one file at a path like
// EFI/BOOT/BOOTX64.EFI. hidden is the number of sectors before the partition.
func buildESP(path string, content []byte, mtime time.Time, hidden uint32) ([]byte, error) {
	v := &fatVolume{fat: []uint32{0x0fffff00 | fatMedia, fatEndOfChain}, stamp: fatTime(mtime)}
	parts := strings.Split(path, "/")
	for _, p := range parts {
		if _, err := shortName(p); err != nil {
			return nil, err
		}
	}
	// The root folder must come first, at cluster 2, so folders are reserved
	// before the file and filled when their content's place is known.
	clusters := make([]uint32, len(parts))
	for i := range parts {
		clusters[i] = v.alloc(fatClusterSize)
	}
	file := v.alloc(len(content))
	copy(v.at(file), content)
	for i, p := range parts {
		v.fillFolder(clusters, i, p, file, len(content))
	}
	return v.image(hidden), nil
}

// fillFolder writes folder i, whose only content is called name.
func (v *fatVolume) fillFolder(clusters []uint32, i int, name string, file uint32, size int) {
	dir := v.at(clusters[i])
	if i > 0 {
		parent := clusters[i-1]
		if i == 1 {
			parent = 0 // how the specification calls the root
		}
		v.dirEntry(dir, ".", fatDirectory, clusters[i], 0)
		v.dirEntry(dir[fatEntrySize:], "..", fatDirectory, parent, 0)
		dir = dir[2*fatEntrySize:]
	}
	if i+1 < len(clusters) {
		v.dirEntry(dir, name, fatDirectory, clusters[i+1], 0)
		return
	}
	v.dirEntry(dir, name, fatArchive, file, size)
}

// alloc reserves a run of clusters and returns the first.
func (v *fatVolume) alloc(size int) uint32 {
	first := uint32(len(v.fat))
	n := max(1, alignUp(size, fatClusterSize)/fatClusterSize)
	for i := range n - 1 {
		v.fat = append(v.fat, first+uint32(i)+1)
	}
	v.fat = append(v.fat, fatEndOfChain)
	v.data = append(v.data, make([]byte, n*fatClusterSize)...)
	return first
}

func (v *fatVolume) at(cluster uint32) []byte {
	return v.data[int(cluster-2)*fatClusterSize:]
}

func (v *fatVolume) dirEntry(b []byte, name string, attr byte, cluster uint32, size int) {
	short, _ := shortName(name)
	copy(b, short)
	b[11] = attr
	copy(b[14:], v.stamp[:])  // created
	copy(b[18:], v.stamp[2:]) // last read
	copy(b[22:], v.stamp[:])  // written
	binary.LittleEndian.PutUint16(b[20:], uint16(cluster>>16))
	binary.LittleEndian.PutUint16(b[26:], uint16(cluster))
	binary.LittleEndian.PutUint32(b[28:], uint32(size))
}

// image puts boot sectors and tables before the data.
func (v *fatVolume) image(hidden uint32) []byte {
	clusters := max(len(v.fat)-2, fatMinClusters+1)
	fatSectors := alignUp((clusters+2)*4, sectorSize) / sectorSize
	dataStart := fatReserved + fatCopies*fatSectors
	total := dataStart + clusters*fatClusterSectors
	img := make([]byte, total*sectorSize)
	boot := fatBootSector(uint32(total), uint32(fatSectors), hidden)
	info := fatInfoSector(uint32(clusters-(len(v.fat)-2)), uint32(len(v.fat)))
	for _, at := range []int{0, 6} { // the second is the backup
		copy(img[at*sectorSize:], boot)
		copy(img[(at+1)*sectorSize:], info)
	}
	for c := range fatCopies {
		table := img[(fatReserved+c*fatSectors)*sectorSize:]
		for i, e := range v.fat {
			binary.LittleEndian.PutUint32(table[i*4:], e)
		}
	}
	copy(img[dataStart*sectorSize:], v.data)
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
	if name == "." || name == ".." {
		return fmt.Sprintf("%-11s", name), nil
	}
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
