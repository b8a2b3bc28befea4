// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// MaxEvidence is the size of evidence, in bytes of JSON: a boot log and a runtime log of the
// largest sizes in base64, and what else there is.
const MaxEvidence = 2 * (MaxBootLog + MaxRuntimeLog)

// Sizes in bytes of logs in evidence. Firmware reserves 64 KiB to 256 KiB for its own.
const (
	MaxBootLog    = 1 << 20
	MaxRuntimeLog = 1 << 20
)

// PCRs is how many registers a TPM's quote has: all of the bank (TCG PC Client Platform TPM
// Profile 1.05, 4.6 "PCR Requirements").
const PCRs = 24

// InitDataPCR is extended once with the digest of the initdata, as Trustee's verifier expects.
const InitDataPCR = 8

// TPMEvidence is evidence of a TPM 2.0. Trustee's verifier knows the first two fields and
// ignores the others, which are ours. Bytes are base64 in JSON.
type TPMEvidence struct {
	// AKPublic is the attestation key as a DER SubjectPublicKeyInfo.
	AKPublic []byte   `json:"ak_public"`
	Quote    TPMQuote `json:"tpm_quote"`
	// AttestationKey is the same key as a TPM2B_PUBLIC, which says what the TPM allows it to sign.
	AttestationKey []byte `json:"ak,omitempty"`
	// Credential is what [Identity.Activate] decrypted.
	Credential []byte `json:"credential,omitempty"`
	// BootLog is the firmware's event log (TCG PC Client Platform Firmware Profile).
	BootLog []byte `json:"boot_log,omitempty"`
	// RuntimeLog is the log of package eventlog, of what happened since.
	RuntimeLog string `json:"runtime_log,omitempty"`
}

// TPMQuote is what TPM2_Quote signed, and the values that it has a digest of.
type TPMQuote struct {
	// Message is a TPMS_ATTEST.
	Message []byte `json:"message"`
	// Signature is a TPMT_SIGNATURE: RSASSA with SHA-256.
	Signature []byte `json:"signature"`
	// PCRs are the SHA-256 registers 0 to 23 in hex.
	PCRs []string `json:"pcrs"`
}

// SampleEvidence proves nothing.
type SampleEvidence struct {
	SVN        string `json:"svn"`
	ReportData []byte `json:"report_data"`
}

// SNPEvidence is a report of AMD SEV-SNP and the certificates that the host has for it.
type SNPEvidence struct {
	Report       SNPReport        `json:"attestation_report"`
	Certificates []SNPCertificate `json:"cert_chain"`
}

// SNPCertificate is an entry of the host's certificate table.
type SNPCertificate struct {
	// Type is "ARK", "ASK", "VCEK" or "VLEK"; of other kinds it may be an object.
	Type any `json:"cert_type"`
	// Data is DER.
	Data byteArray `json:"data"`
}

// TDXEvidence is a quote of Intel TDX. Bytes are base64 in JSON.
type TDXEvidence struct {
	// EventLog is the firmware's CC event log (UEFI 2.11, 38.2), and the events since in the same form.
	EventLog []byte `json:"cc_eventlog,omitempty"`
	// Quote is a TD quote of version 4.
	Quote []byte `json:"quote"`
}

// CredentialFor returns what a TPM gets encrypted of a secret that is to be known only to who has the
// attestation key of that name (TPM2B_NAME without its size). A device that decrypts it for one key has
// nothing for another.
func CredentialFor(secret, name []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(name)
	return mac.Sum(nil)
}

// FixedSize returns data cut or filled up with zeros to a size in bytes: how a TEE takes report data, and a
// digest of initdata.
func FixedSize(data []byte, size int) []byte {
	fixed := make([]byte, size)
	copy(fixed, data)
	return fixed
}

// byteArray is an array of numbers in JSON, as Trustee has bytes of certificates.
type byteArray []byte

// MarshalJSON implements [json.Marshaler].
func (b byteArray) MarshalJSON() ([]byte, error) {
	numbers := make([]uint16, len(b)) // a slice of uint8 would be base64
	for i, v := range b {
		numbers[i] = uint16(v)
	}
	return json.Marshal(numbers)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *byteArray) UnmarshalJSON(data []byte) error {
	var numbers []uint16
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	*b = make([]byte, len(numbers))
	for i, v := range numbers {
		if v > 0xff {
			return fmt.Errorf("%d is not a byte", v)
		}
		(*b)[i] = byte(v)
	}
	return nil
}
