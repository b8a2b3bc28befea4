// SPDX-License-Identifier: Apache-2.0

// Package measure predicts what a TPM holds of a VM that booted a unified kernel image by UEFI. What counts as
// an event, and in which order, is what OVMF 2022.11, systemd-stub 252 and Linux 6.1 do; a test compares it with
// the registers of VMs that have booted.
package measure

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"debug/pe"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf16"

	"github.com/foxboron/go-uefi/authenticode"
)

// Digest is a SHA-256 digest; it is hexadecimal in JSON.
type Digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Expected are registers of the bank sha256.
type Expected struct {
	// Disk4 is PCR 4 of a VM whose firmware found the image on a disk, Direct4 of one to which QEMU gave it as
	// -kernel: the firmware then loads it before it says that it tries boot options.
	Disk4   Digest `json:"pcr04_disk"`
	Direct4 Digest `json:"pcr04_direct"`
	// PCR9 is what the kernel measures: its command line and its initramfs.
	PCR9 Digest `json:"pcr09"`
	// PCR11 is what systemd-stub measures: the image's sections.
	PCR11 Digest `json:"pcr11"`
	// PCR12 is 0 unless somebody gave the stub another command line or more initramfs.
	PCR12 Digest `json:"pcr12"`
}

// stubSections are what systemd-stub 252 measures, in its order (systemd-stub(7), "TPM PCR Notes").
var stubSections = []string{".linux", ".osrel", ".cmdline", ".initrd", ".splash", ".dtb"}

// UKI predicts the registers of VMs that boot a unified kernel image. They are the same for an image and the
// same image with a signature.
func UKI(image []byte) (*Expected, error) {
	sections, err := readSections(image)
	if err != nil {
		return nil, err
	}
	uki, err := authenticodeOf(image)
	if err != nil {
		return nil, err
	}
	kernel, err := authenticodeOf(sections[".linux"])
	if err != nil {
		return nil, fmt.Errorf("section .linux: %w", err)
	}
	// TCG PC Client Platform Firmware Profile 1.05, 3.3.4.5.
	tried, separator := sum([]byte("Calling EFI Application from Boot Option")), sum(make([]byte, 4))
	e := &Expected{
		Disk4:   extend(tried, separator, uki, kernel),
		Direct4: extend(uki, tried, separator, kernel),
		// Linux, efi_measure_tagged_event: the UTF-16 text that was given to it, with its end, and the file.
		PCR9: extend(sum(loadOptions(sections[".cmdline"])), sum(sections[".initrd"])),
	}
	for _, name := range stubSections {
		if data, ok := sections[name]; ok {
			e.PCR11 = extendFrom(e.PCR11, sum([]byte(name+"\x00")), sum(data))
		}
	}
	return e, nil
}

func readSections(image []byte) (map[string][]byte, error) {
	file, err := pe.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("not an EFI program: %w", err)
	}
	sections := map[string][]byte{}
	for _, s := range file.Sections {
		data, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.Name, err)
		}
		sections[s.Name] = data[:min(len(data), int(s.VirtualSize))]
	}
	for _, name := range []string{".linux", ".cmdline", ".initrd"} {
		if sections[name] == nil {
			return nil, fmt.Errorf("no unified kernel image: it has no section %s; build one with podvm-image build --format uki", name)
		}
	}
	return sections, nil
}

// authenticodeOf returns the digest by which firmware knows an EFI program: Authenticode's, which leaves out signatures.
func authenticodeOf(image []byte) (Digest, error) {
	parsed, err := authenticode.Parse(bytes.NewReader(image))
	if err != nil {
		return Digest{}, fmt.Errorf("not an EFI program: %w", err)
	}
	hash := parsed.Hash(crypto.SHA256)
	if len(hash) != sha256.Size {
		return Digest{}, errors.New("EFI program that cannot be hashed")
	}
	return Digest(hash), nil
}

func loadOptions(cmdline []byte) []byte {
	var out []byte
	for _, unit := range utf16.Encode([]rune(string(cmdline) + "\x00")) {
		out = binary.LittleEndian.AppendUint16(out, unit)
	}
	return out
}

func sum(data []byte) Digest { return sha256.Sum256(data) }

func extend(events ...Digest) Digest { return extendFrom(Digest{}, events...) }

// extendFrom is TPM2_PCR_Extend for each event.
func extendFrom(pcr Digest, events ...Digest) Digest {
	for _, event := range events {
		pcr = sha256.Sum256(append(pcr[:], event[:]...))
	}
	return pcr
}
