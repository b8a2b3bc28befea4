// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Launch is the launch measurement of a VM; it is hexadecimal in JSON, as in the claims of evidence.
type Launch [sha512.Size384]byte

// MarshalText implements encoding.TextMarshaler.
func (l Launch) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l Launch) String() string { return hex.EncodeToString(l[:]) }

// Hypervisors differ in how they launch a VM.
const (
	EC2 = "ec2" // AWS
	GCE = "gce" // Google Cloud
)

// SNP predicts the measurement of SEV-SNP VMs of a cloud, from the firmware that it publishes: of firmware and processors alone, not of the
// image, which the firmware loads.
func SNP(firmware []byte, hypervisor string, vcpus int) (Launch, error) {
	f, err := parseFirmware(firmware)
	if err != nil {
		return Launch{}, fmt.Errorf("not a firmware for SEV-SNP: %w", err)
	}
	var l launch
	l.normal(4<<30-uint64(len(firmware)), firmware) // it ends at 4 GiB
	if err := l.sections(f.sections, hypervisor); err != nil {
		return Launch{}, err
	}
	l.update(pageVMSA, vmsaAddress, sha512.Sum384(saveArea(bootEIP, hypervisor)))
	if vcpus > 1 && f.resetEIP == 0 {
		return Launch{}, errors.New("not a firmware for SEV-SNP with several processors: it has no reset vector for them")
	}
	other := sha512.Sum384(saveArea(f.resetEIP, hypervisor))
	for range vcpus - 1 {
		l.update(pageVMSA, vmsaAddress, other)
	}
	return l.digest, nil
}

// Types of pages (SEV Secure Nested Paging Firmware ABI, 56860, SNP_LAUNCH_UPDATE).
const (
	pageNormal     = 1
	pageVMSA       = 2
	pageZero       = 3
	pageUnmeasured = 4
	pageSecrets    = 5
	pageCPUID      = 6

	pageSize = 4096
	// vmsaAddress is -1, as a page's address of 52 bits.
	vmsaAddress = 0xFFFFFFFFF000
)

// launch is what the security processor does with the pages of a VM.
type launch struct{ digest Launch }

// update adds a page (56860, PAGE_INFO: no interrupt injection, no rights of other VMPLs).
func (l *launch) update(kind byte, address uint64, contents Launch) {
	info := make([]byte, 0, 0x70)
	info = append(append(info, l.digest[:]...), contents[:]...)
	info = append(info, 0x70, 0, kind, 0, 0, 0, 0, 0)
	l.digest = sha512.Sum384(binary.LittleEndian.AppendUint64(info, address))
}

func (l *launch) normal(address uint64, data []byte) {
	for at := 0; at < len(data); at += pageSize {
		l.update(pageNormal, address+uint64(at), sha512.Sum384(data[at:at+pageSize]))
	}
}

// Types of sections in the firmware (edk2, OvmfPkg/ResetVector/X64/OvmfSevMetadata.asm).
const (
	sectionMemory  = 1
	sectionSecrets = 2
	sectionCPUID   = 3
	sectionCAA     = 4    // of a service module
	sectionHashes  = 0x10 // of a kernel that the hypervisor loads: no cloud does
)

// sections adds the memory that the firmware wants prepared. EC2 adds the page for CPUID after all others.
func (l *launch) sections(list []section, hypervisor string) error {
	memory := byte(pageZero)
	if hypervisor == GCE {
		memory = pageUnmeasured
	}
	var last []section
	for _, s := range list {
		switch s.Kind {
		case sectionMemory:
			l.blank(memory, s)
		case sectionCAA, sectionHashes:
			l.blank(pageZero, s)
		case sectionSecrets:
			l.update(pageSecrets, uint64(s.Address), Launch{})
		case sectionCPUID:
			if last = append(last, s); hypervisor != EC2 {
				l.update(pageCPUID, uint64(s.Address), Launch{})
			}
		default:
			return fmt.Errorf("the firmware has a section of type %#x, which is unknown here", s.Kind)
		}
	}
	if hypervisor == EC2 {
		for _, s := range last {
			l.update(pageCPUID, uint64(s.Address), Launch{})
		}
	}
	return nil
}

func (l *launch) blank(kind byte, s section) {
	for at := uint64(0); at < uint64(s.Size); at += pageSize {
		l.update(kind, uint64(s.Address)+at, Launch{})
	}
}

// bootEIP is where the first processor begins.
const bootEIP = 0xFFFFFFF0

// saveArea is the page of a processor's registers at its reset (AMD64 APM volume 2, 24593, table B-4), as KVM of each cloud sets them.
func saveArea(eip uint32, hypervisor string) []byte {
	page := make([]byte, pageSize)
	le := binary.LittleEndian
	segment := func(at int, selector, attributes uint16, base uint64) {
		le.PutUint16(page[at:], selector)
		le.PutUint16(page[at+2:], attributes)
		le.PutUint32(page[at+4:], 0xFFFF)
		le.PutUint64(page[at+8:], base)
	}
	code, stack, task, pat := uint16(0x9B), uint16(0x93), uint16(0x8B), uint64(0x00070106)
	if hypervisor == EC2 {
		stack, task, pat = 0x92, 0x83, 0x7040600070406
		if eip == bootEIP {
			code = 0x9A
		}
	}
	for _, at := range []int{0x00, 0x30, 0x40, 0x50} { // ES, DS, FS, GS
		segment(at, 0, 0x93, 0)
	}
	segment(0x10, 0xF000, code, uint64(eip&0xFFFF0000)) // CS
	segment(0x20, 0, stack, 0)                          // SS
	segment(0x60, 0, 0, 0)                              // GDTR
	segment(0x70, 0, 0x82, 0)                           // LDTR
	segment(0x80, 0, 0, 0)                              // IDTR
	segment(0x90, 0, task, 0)                           // TR
	for at, value := range map[int]uint64{
		0xD0:  0x1000,                   // EFER: SVME
		0x148: 0x40,                     // CR4: MCE
		0x158: 0x10,                     // CR0: ET
		0x160: 0x400, 0x168: 0xFFFF0FF0, // DR7, DR6
		0x170: 0x2, // RFLAGS
		0x178: uint64(eip & 0xFFFF),
		0x268: pat,
		0x310: 0x600, // RDX: the processor's signature
		0x3B0: 0x1,   // SEV_FEATURES: SNP active
		0x3E8: 0x1,   // XCR0: x87
	} {
		le.PutUint64(page[at:], value)
	}
	return page
}

// firmware is what an OVMF says of itself for SEV-SNP.
type firmware struct {
	sections []section
	resetEIP uint32 // where the other processors begin; 0 if it does not say
}

type section struct{ Address, Size, Kind uint32 }

// Entries of the table before the firmware's last 32 bytes (edk2, OvmfPkg/ResetVector/Ia16/ResetVectorVtf0.asm).
var (
	tableFooter = guid("96b582de-1fb2-45f7-baea-a366c55a082d")
	resetBlock  = guid("00f771de-1a7e-4fcb-890e-68c77e2fb44e")
	sevMetadata = guid("dc886566-984a-4798-a75e-5585a7bf67cc")
)

const (
	entryHeader = 2 + 16 // size of the entry, and what it is; it is after its data
	maxSections = 64
	maxFirmware = 64 << 20
)

// guid returns it as firmware has it: the first three parts are little-endian.
func guid(text string) (le [16]byte) {
	le = uuid.MustParse(text)
	for _, part := range [][]byte{le[0:4], le[4:6], le[6:8]} {
		slices.Reverse(part)
	}
	return le
}

func parseFirmware(data []byte) (*firmware, error) {
	if len(data) == 0 || len(data)%pageSize != 0 || len(data) > maxFirmware {
		return nil, fmt.Errorf("it has %d bytes: want whole pages, 64 MiB at most", len(data))
	}
	table := data[:len(data)-32]
	footer, size := cutEntry(table)
	if footer != tableFooter || size > len(table) || size < entryHeader {
		return nil, errors.New("it does not end with OVMF's table")
	}
	f := &firmware{}
	for table = table[len(table)-size : len(table)-entryHeader]; len(table) >= entryHeader; {
		what, size := cutEntry(table)
		if size < entryHeader || size > len(table) {
			return nil, errors.New("an entry of its table has a wrong size")
		}
		entry := table[len(table)-size : len(table)-entryHeader]
		table = table[:len(table)-size]
		if what != resetBlock && what != sevMetadata {
			continue
		}
		if len(entry) < 4 {
			return nil, errors.New("an entry of its table is too short")
		}
		value := binary.LittleEndian.Uint32(entry)
		if what == resetBlock {
			f.resetEIP = value
			continue
		}
		var err error
		if f.sections, err = parseMetadata(data, value); err != nil {
			return nil, err
		}
	}
	if f.sections == nil {
		return nil, errors.New("it has no metadata of SEV")
	}
	return f, nil
}

// cutEntry returns what the last entry of a table is, and its size in bytes with its header.
func cutEntry(table []byte) (what [16]byte, size int) {
	header := table[len(table)-entryHeader:]
	return [16]byte(header[2:]), int(binary.LittleEndian.Uint16(header))
}

// parseMetadata reads the sections, which begin at so many bytes from the end.
func parseMetadata(data []byte, fromEnd uint32) ([]section, error) {
	if uint64(fromEnd) > uint64(len(data)) {
		return nil, errors.New("its metadata is outside of it")
	}
	in := bytes.NewReader(data[len(data)-int(fromEnd):])
	var header struct {
		Signature            [4]byte
		Size, Version, Count uint32
	}
	if err := binary.Read(in, binary.LittleEndian, &header); err != nil || string(header.Signature[:]) != "ASEV" || header.Version != 1 {
		return nil, errors.New("its metadata of SEV is not of version 1")
	}
	if header.Count == 0 || header.Count > maxSections {
		return nil, fmt.Errorf("its metadata of SEV has %d sections, want 1 to %d", header.Count, maxSections)
	}
	list := make([]section, header.Count)
	if err := binary.Read(in, binary.LittleEndian, list); err != nil {
		return nil, errors.New("its metadata of SEV is cut off")
	}
	for _, s := range list {
		if s.Size%pageSize != 0 || s.Address%pageSize != 0 || s.Size > maxFirmware {
			return nil, fmt.Errorf("a section of its metadata has %#x bytes at %#x: want whole pages", s.Size, s.Address)
		}
	}
	return list, nil
}
