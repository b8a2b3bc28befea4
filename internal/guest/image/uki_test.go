// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	stdpe "debug/pe"
	"encoding/binary"
	"strings"
	"testing"
)

// sampleStub is a PE32+ program with one section and room for more.
func sampleStub(headerSize int) []byte {
	const sig, optionalSize = 0x80, 240
	b := make([]byte, 1024+512)
	le := binary.LittleEndian
	copy(b, "MZ")
	le.PutUint32(b[peOffsetAt:], sig)
	copy(b[sig:], "PE\x00\x00")
	le.PutUint16(b[sig+4:], 0x8664)
	le.PutUint16(b[sig+peSectionCount:], 1)
	le.PutUint16(b[sig+peOptionalSize:], optionalSize)
	opt := sig + peOptionalHeader
	le.PutUint16(b[opt:], peMagic64)
	le.PutUint32(b[opt+peSectionAlign:], 4096)
	le.PutUint32(b[opt+peFileAlign:], 512)
	le.PutUint32(b[opt+peImageSize:], 0x2000)
	le.PutUint32(b[opt+peHeadersSize:], uint32(headerSize))
	le.PutUint32(b[opt+108:], 16) // NumberOfRvaAndSizes
	text := opt + optionalSize
	copy(b[text:], ".text")
	le.PutUint32(b[text+8:], 500)
	le.PutUint32(b[text+12:], 0x1000)
	le.PutUint32(b[text+16:], 512)
	le.PutUint32(b[text+20:], 1024)
	return b
}

func TestUKISectionsAreReadBack(t *testing.T) {
	want := []ukiSection{
		{".osrel", []byte("ID=x\n")},
		{".cmdline", []byte("quiet")},
		{".linux", bytes.Repeat([]byte("kernel"), 5000)},
		{".initrd", []byte("initrd")},
	}
	uki, err := buildUKI(sampleStub(1024), want)
	if err != nil {
		t.Fatal(err)
	}
	f, err := stdpe.NewFile(bytes.NewReader(uki))
	if err != nil {
		t.Fatal(err)
	}
	end := uint32(0x1000 + 500)
	for i, w := range want {
		s := f.Sections[i+1]
		data, err := s.Data()
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != w.name || !bytes.Equal(data[:s.VirtualSize], w.data) {
			t.Errorf("section %d is %s with %d bytes, want %s with %d", i+1, s.Name, s.VirtualSize, w.name, len(w.data))
		}
		if s.VirtualAddress < end || s.VirtualAddress%4096 != 0 || s.Offset%512 != 0 {
			t.Errorf("%s at %#x, file offset %#x: want aligned and not before %#x", s.Name, s.VirtualAddress, s.Offset, end)
		}
		end = s.VirtualAddress + s.VirtualSize
	}
	if size := f.OptionalHeader.(*stdpe.OptionalHeader64).SizeOfImage; size < end {
		t.Errorf("SizeOfImage %#x, the last section ends at %#x", size, end)
	}
}

func TestUKIRefuses(t *testing.T) {
	small := sampleStub(0x80 + peOptionalHeader + 240 + peSectionHeader)
	old := sampleStub(1024)
	binary.LittleEndian.PutUint16(old[0x80+peOptionalHeader:], 0x10b)
	for name, c := range map[string]struct {
		stub []byte
		want string
	}{
		"not a program": {[]byte("#!/bin/sh"), "no MZ magic"},
		"cut off":       {sampleStub(1024)[:0x84], "no PE signature"},
		"32 bit":        {old, "64 bit"},
		"full header":   {small, "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := buildUKI(c.stub, []ukiSection{{".linux", []byte("x")}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
