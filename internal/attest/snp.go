// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"encoding/binary"
	"fmt"
)

// SNPReportSize is that of an ATTESTATION_REPORT in bytes (AMD SEV-SNP Firmware ABI, document 56860,
// table 23).
const SNPReportSize = 0x4a0

// SNPReport is an ATTESTATION_REPORT by fields, in JSON as Trustee's verifier takes it. Bytes that are not
// named are reserved and must be zero.
type SNPReport struct {
	Version         uint32     `json:"version"`
	GuestSVN        uint32     `json:"guest_svn"`
	Policy          uint64     `json:"policy"`
	FamilyID        [16]byte   `json:"family_id"`
	ImageID         [16]byte   `json:"image_id"`
	VMPL            uint32     `json:"vmpl"`
	SigAlgo         uint32     `json:"sig_algo"`
	CurrentTCB      SNPTCB     `json:"current_tcb"`
	PlatInfo        uint64     `json:"plat_info"`
	KeyInfo         uint32     `json:"key_info"`
	ReportData      [64]byte   `json:"report_data"`
	Measurement     [48]byte   `json:"measurement"`
	HostData        [32]byte   `json:"host_data"`
	IDKeyDigest     [48]byte   `json:"id_key_digest"`
	AuthorKeyDigest [48]byte   `json:"author_key_digest"`
	ReportID        [32]byte   `json:"report_id"`
	ReportIDMA      [32]byte   `json:"report_id_ma"`
	ReportedTCB     SNPTCB     `json:"reported_tcb"`
	CPUIDFamily     *uint8     `json:"cpuid_fam_id"` // since version 3
	CPUIDModel      *uint8     `json:"cpuid_mod_id"`
	CPUIDStepping   *uint8     `json:"cpuid_step"`
	ChipID          [64]byte   `json:"chip_id"`
	CommittedTCB    SNPTCB     `json:"committed_tcb"`
	Current         SNPVersion `json:"current"`
	Committed       SNPVersion `json:"committed"`
	LaunchTCB       SNPTCB     `json:"launch_tcb"`
	// Since version 5.
	LaunchMitigations  *uint64 `json:"launch_mit_vector"`
	CurrentMitigations *uint64 `json:"current_mit_vector"`
	Signature          struct {
		R [72]byte `json:"r"`
		S [72]byte `json:"s"`
	} `json:"signature"`
}

// SNPTCB has the security versions of the parts of a platform (TCB_VERSION).
type SNPTCB struct {
	FMC        *uint8 `json:"fmc"` // since Turin
	Bootloader uint8  `json:"bootloader"`
	TEE        uint8  `json:"tee"`
	SNP        uint8  `json:"snp"`
	Microcode  uint8  `json:"microcode"`
}

// SNPVersion is one of the firmware.
type SNPVersion struct {
	Build uint8 `json:"build"`
	Minor uint8 `json:"minor"`
	Major uint8 `json:"major"`
}

type snpField struct {
	offset int
	value  any
}

// fields returns where each field is, and allocates those that this version and processor have.
func (r *SNPReport) fields() []snpField {
	fields := []snpField{
		{0x00, &r.Version}, {0x04, &r.GuestSVN}, {0x08, &r.Policy}, {0x10, &r.FamilyID}, {0x20, &r.ImageID},
		{0x30, &r.VMPL}, {0x34, &r.SigAlgo}, {0x40, &r.PlatInfo}, {0x48, &r.KeyInfo}, {0x50, &r.ReportData},
		{0x90, &r.Measurement}, {0xc0, &r.HostData}, {0xe0, &r.IDKeyDigest}, {0x110, &r.AuthorKeyDigest},
		{0x140, &r.ReportID}, {0x160, &r.ReportIDMA}, {0x1a0, &r.ChipID}, {0x1e8, &r.Current},
		{0x1ec, &r.Committed}, {0x2a0, &r.Signature},
	}
	if r.Version >= 3 {
		fields = append(fields, snpField{0x188, allocated(&r.CPUIDFamily)}, snpField{0x189, allocated(&r.CPUIDModel)},
			snpField{0x18a, allocated(&r.CPUIDStepping)})
	}
	if r.Version >= 5 {
		fields = append(fields, snpField{0x1f8, allocated(&r.LaunchMitigations)}, snpField{0x200, allocated(&r.CurrentMitigations)})
	}
	return fields
}

// tcbs returns the fields of the parts' versions, whose order depends on the processor.
func (r *SNPReport) tcbs(turin bool) (fields []snpField) {
	for offset, t := range map[int]*SNPTCB{0x38: &r.CurrentTCB, 0x180: &r.ReportedTCB, 0x1e0: &r.CommittedTCB, 0x1f0: &r.LaunchTCB} {
		if turin {
			fields = append(fields, snpField{offset, allocated(&t.FMC)}, snpField{offset + 1, &t.Bootloader},
				snpField{offset + 2, &t.TEE}, snpField{offset + 3, &t.SNP}, snpField{offset + 7, &t.Microcode})
		} else {
			fields = append(fields, snpField{offset, &t.Bootloader}, snpField{offset + 1, &t.TEE},
				snpField{offset + 6, &t.SNP}, snpField{offset + 7, &t.Microcode})
		}
	}
	return fields
}

func allocated[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}

// turin reports whether the processor is of that generation or later: family 1Ah, or before version 3 of
// the report a chip's name of 8 bytes.
func (r *SNPReport) turin() bool {
	if r.CPUIDFamily != nil {
		return *r.CPUIDFamily >= 0x1a
	}
	return [56]byte(r.ChipID[8:]) == [56]byte{} && [8]byte(r.ChipID[:]) != [8]byte{}
}

// ParseSNPReport returns the fields of an ATTESTATION_REPORT.
func ParseSNPReport(raw []byte) (*SNPReport, error) {
	if len(raw) != SNPReportSize {
		return nil, fmt.Errorf("an SNP report has %d bytes, want %d", len(raw), SNPReportSize)
	}
	r := &SNPReport{Version: binary.LittleEndian.Uint32(raw)}
	for _, f := range r.fields() {
		if _, err := binary.Decode(raw[f.offset:], binary.LittleEndian, f.value); err != nil {
			return nil, err
		}
	}
	for _, f := range r.tcbs(r.turin()) {
		if _, err := binary.Decode(raw[f.offset:], binary.LittleEndian, f.value); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Bytes returns the ATTESTATION_REPORT, which is what the signature is of.
func (r *SNPReport) Bytes() ([]byte, error) {
	raw := make([]byte, SNPReportSize)
	for _, f := range append(r.fields(), r.tcbs(r.turin())...) {
		if _, err := binary.Encode(raw[f.offset:], binary.LittleEndian, f.value); err != nil {
			return nil, err
		}
	}
	return raw, nil
}
