// SPDX-License-Identifier: Apache-2.0

package nocloud

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// An ISO 9660 image is written here, not with a library, because libraries
// stage the files in a folder for temporary files, where a crash would leave
// the pod's private key.

const (
	isoSector  = 2048
	isoPVD     = 16 // ECMA-119, 6.7.1: descriptors begin at sector 16
	isoEnd     = isoPVD + 1
	isoPathL   = isoPVD + 2
	isoPathM   = isoPVD + 3
	isoRootDir = isoPVD + 4
	isoData    = isoPVD + 5
)

// isoFile is a file of the root folder; its name is in capitals, which Linux
// shows as small letters.
type isoFile struct {
	name string
	data []byte
}

// isoImage writes an image with files, sorted by name, in its root folder. The
// folder must fit in a sector: about forty files.
func isoImage(label string, files []isoFile) []byte {
	next := uint32(isoData)
	root := slices.Concat(isoEntry("\x00", isoRootDir, isoSector, true), isoEntry("\x01", isoRootDir, isoSector, true))
	var data []byte
	for _, file := range files {
		root = append(root, isoEntry(file.name+".;1", next, len(file.data), false)...)
		padded := isoPad(file.data)
		data = append(data, padded...)
		next += uint32(len(padded) / isoSector)
	}
	return slices.Concat(
		make([]byte, isoPVD*isoSector),
		isoPad(isoDescriptor(label, next)),
		isoPad([]byte("\xffCD001\x01")),
		isoPad(isoPath(binary.LittleEndian)), isoPad(isoPath(binary.BigEndian)),
		isoPad(root), data,
	)
}

func isoPad(data []byte) []byte {
	return append(slices.Clone(data), make([]byte, -len(data)&(isoSector-1))...)
}

// isoEntry is a directory record (ECMA-119, 9.1).
func isoEntry(name string, sector uint32, size int, folder bool) []byte {
	length := 33 + len(name) + (33+len(name))%2
	e := make([]byte, length)
	e[0] = byte(length)
	both32(e[2:], sector)
	both32(e[10:], uint32(size))
	if folder {
		e[25] = 2
	}
	both16(e[28:], 1)
	e[32] = byte(len(name))
	copy(e[33:], name)
	return e
}

// isoDescriptor is a primary volume descriptor (ECMA-119, 8.4).
func isoDescriptor(label string, sectors uint32) []byte {
	d := make([]byte, isoSector)
	copy(d, "\x01CD001\x01")
	for _, text := range [][2]int{{8, 72}, {190, 813}} {
		copy(d[text[0]:text[1]], bytes.Repeat([]byte{' '}, text[1]-text[0]))
	}
	copy(d[40:], label)
	both32(d[80:], sectors)
	both16(d[120:], 1)
	both16(d[124:], 1)
	both16(d[128:], isoSector)
	both32(d[132:], uint32(len(isoPath(binary.LittleEndian))))
	binary.LittleEndian.PutUint32(d[140:], isoPathL)
	binary.BigEndian.PutUint32(d[148:], isoPathM)
	copy(d[156:], isoEntry("\x00", isoRootDir, isoSector, true))
	for at := 813; at < 881; at += 17 { // four times: not specified
		copy(d[at:], strings.Repeat("0", 16))
	}
	d[881] = 1
	return d
}

// isoPath is the path table (ECMA-119, 9.4) of an image with one folder.
func isoPath(order binary.ByteOrder) []byte {
	t := make([]byte, 10)
	t[0] = 1
	order.PutUint32(t[2:], isoRootDir)
	order.PutUint16(t[6:], 1)
	return t
}

func both32(at []byte, v uint32) {
	binary.LittleEndian.PutUint32(at, v)
	binary.BigEndian.PutUint32(at[4:], v)
}

func both16(at []byte, v uint16) {
	binary.LittleEndian.PutUint16(at, v)
	binary.BigEndian.PutUint16(at[2:], v)
}
