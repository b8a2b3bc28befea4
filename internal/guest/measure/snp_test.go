// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
)

// madeFirmware is one with all kinds of sections.
func madeFirmware() []byte {
	le := binary.LittleEndian
	data := make([]byte, 3*pageSize)
	for i := range data {
		data[i] = byte(i % 251)
	}
	const metadata = 0x800 // from the end
	sections := []section{{0x800000, 0x3000, sectionMemory}, {0x80E000, 0x1000, sectionCPUID}, {0x80D000, 0x1000, sectionSecrets},
		{0x80F000, 0x1000, sectionCAA}, {0x810000, 0x1000, sectionHashes}}
	at := data[len(data)-metadata:]
	copy(at, "ASEV")
	le.PutUint32(at[4:], uint32(16+12*len(sections)))
	le.PutUint32(at[8:], 1)
	le.PutUint32(at[12:], uint32(len(sections)))
	for i, s := range sections {
		for j, v := range []uint32{s.Address, s.Size, s.Kind} {
			le.PutUint32(at[16+12*i+4*j:], v)
		}
	}
	var table []byte
	entry := func(what [16]byte, content uint32) {
		table = le.AppendUint32(table, content)
		table = append(le.AppendUint16(table, 4+entryHeader), what[:]...)
	}
	entry(guid("7255371f-3a3b-4b04-927b-1da6efa8d454"), 0x810C00) // for kernels; does not count
	entry(sevMetadata, metadata)
	entry(resetBlock, 0x80B004)
	table = append(le.AppendUint16(table, uint16(len(table)+entryHeader)), tableFooter[:]...)
	copy(data[len(data)-32-len(table):], table)
	return data
}

// TestSNP: the measurements are those that sev-snp-measure 0.0.13 (virtee) prints for this firmware.
func TestSNP(t *testing.T) {
	if path := os.Getenv("OUTRIGGER_WRITE_FIRMWARE"); path != "" { // to ask it again
		if err := os.WriteFile(path, madeFirmware(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		hypervisor string
		vcpus      int
		want       string
	}{
		{EC2, 1, "3a9a55be2ff5c5bba81a248fc037f46ade2f89c4a40c2817707b8830157deabc0aabf17a83a8d191a98eba6320ac94a9"},
		{EC2, 4, "b260abd49d555a28f14b96c443ff5f0ad231440169ce176fc454113cf95682b49df79759582e788b28c07b29df3c66c1"},
		{GCE, 1, "e02acd4e74d16600d4e2bbd82a0f97b6a3f78da884d681e8a55c404af6660a974b2af9576147265224e5c878bc9a05c9"},
		{GCE, 4, "d513e19b328fe7c36855769e949d331794a3eb4dca8ff71e373d963fd325e85225934a2bc0f8bf608c6d9ef29f1df50a"},
	} {
		if got, err := SNP(madeFirmware(), c.hypervisor, c.vcpus); err != nil || got.String() != c.want {
			t.Errorf("%s, %d processors: %s, %v; want %s", c.hypervisor, c.vcpus, got, err, c.want)
		}
	}
}

func TestSNPOfOtherFirmware(t *testing.T) {
	le := binary.LittleEndian
	for want, spoil := range map[string]func([]byte) []byte{
		"whole pages":              func(b []byte) []byte { return b[1:] },
		"0 bytes":                  func([]byte) []byte { return nil },
		"does not end with":        func(b []byte) []byte { return make([]byte, len(b)) },
		"not of version 1":         func(b []byte) []byte { le.PutUint32(b[len(b)-0x800+8:], 2); return b },
		"4294967295 sections":      func(b []byte) []byte { le.PutUint32(b[len(b)-0x800+12:], 1<<32-1); return b },
		"0xffff bytes":             func(b []byte) []byte { le.PutUint32(b[len(b)-0x800+20:], 0xffff); return b },
		"which is unknown here":    func(b []byte) []byte { le.PutUint32(b[len(b)-0x800+24:], 0x99); return b },
		"a wrong size":             func(b []byte) []byte { le.PutUint16(b[len(b)-32-2*entryHeader:], 1); return b },
		"outside of it":            func(b []byte) []byte { le.PutUint32(b[len(b)-32-3*entryHeader-4-4:], 1<<31); return b },
		"no reset vector for them": func(b []byte) []byte { le.PutUint32(b[len(b)-32-2*entryHeader-4:], 0); return b },
	} {
		if l, err := SNP(spoil(madeFirmware()), EC2, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %v; want %q", l, err, want)
		}
	}
}

func FuzzFirmware(f *testing.F) {
	f.Add(madeFirmware())
	f.Fuzz(func(_ *testing.T, data []byte) { SNP(data, GCE, 1) }) //nolint:errcheck // it must return
}
