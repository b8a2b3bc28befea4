// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// probeMarker is what the probe's guest writes to its serial console.
const probeMarker = "OUTRIGGER-KVM-WORKS"

// probeInitrd returns an initramfs whose init writes the marker and ends, which ends
// the guest too (panic=-1).
func probeInitrd() []byte {
	const folder, device, program = 0o040755, 0o020600, 0o100755
	var out bytes.Buffer
	cpioEntry(&out, "dev", folder, 0, 0, nil)
	cpioEntry(&out, "dev/console", device, 5, 1, nil) // Linux devices.txt: 5,1
	cpioEntry(&out, "init", program, 0, 0, probeInit())
	cpioEntry(&out, "TRAILER!!!", 0, 0, 0, nil)
	return out.Bytes()
}

// cpioEntry writes one entry of a "newc" archive (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
func cpioEntry(out *bytes.Buffer, name string, mode, major, minor int, data []byte) {
	out.WriteString("070701")
	for _, field := range []int{0, mode, 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(out, "%08x", field)
	}
	out.WriteString(name + "\x00")
	out.Write(make([]byte, -out.Len()&3))
	out.Write(data)
	out.Write(make([]byte, -out.Len()&3))
}

// probeInit returns a program for x86-64 Linux: write(1, marker), exit(0).
func probeInit() []byte {
	const base, headers = 0x400000, 64 + 56
	text := probeMarker + "\n"
	code := []byte{
		0xb8, 1, 0, 0, 0, // mov eax, SYS_write
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0x48, 0x8d, 0x35, 16, 0, 0, 0, // lea rsi, [rip+16]
		0xba, byte(len(text)), 0, 0, 0, // mov edx, len
		0x0f, 0x05, // syscall
		0xb8, 60, 0, 0, 0, // mov eax, SYS_exit
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05, // syscall
	}
	size := uint64(headers + len(code) + len(text))
	var elf bytes.Buffer
	elf.WriteString("\x7fELF\x02\x01\x01" + string(make([]byte, 9)))
	for _, field := range []any{
		// ELF header: executable, x86-64, version 1; entry, program headers at
		// 64, no sections; flags, sizes and counts.
		uint16(2), uint16(62), uint32(1), uint64(base + headers), uint64(64), uint64(0),
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// The one segment: load, read and execute; the whole file.
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(4096),
	} {
		binary.Write(&elf, binary.LittleEndian, field)
	}
	return slices.Concat(elf.Bytes(), code, []byte(text))
}

// probeDisk returns a disk whose boot sector writes the marker to the first serial
// port (I/O port 0x3f8) and halts. SeaBIOS does not boot from smaller disks.
func probeDisk() []byte {
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x17, 0x7c, // mov si, text
		0xba, 0xf8, 0x03, // mov dx, 0x3f8
		0xfc,       // cld
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz done
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp next
		0xf4,       // done: hlt
		0xeb, 0xfd, // jmp done
		0x90, // text is at 0x7c00 + 23
	}
	disk := make([]byte, 1<<20)
	copy(disk, slices.Concat(code, []byte(probeMarker), []byte{0}))
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}
