// SPDX-License-Identifier: Apache-2.0

// Package attest has the forms of evidence by which a VM proves where and as what it
// runs: what a guest collects (internal/guest/attester) and who asks verifies
// (internal/attest/verify). The forms are those of Trustee's verifiers.
package attest

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
)

// TEE names what vouches for a VM, as the key broker protocol does.
type TEE string

// What evidence there is. Sample proves nothing: it is for tests of what uses evidence.
const (
	Sample TEE = "sample"
	TPM    TEE = "tpm"
	SNP    TEE = "snp"
	TDX    TEE = "tdx"
)

// Attester collects the evidence of this VM.
type Attester interface {
	TEE() TEE
	// Evidence returns evidence, a JSON object, that is bound to reportData. Of more than the TEE has room
	// for (64 bytes; a TPM: 32) the first bytes count, less is filled up with zeros.
	Evidence(ctx context.Context, reportData []byte) (json.RawMessage, error)
}

// Identity is an Attester whose key a broker can prove to be of a certain device: a TPM. The broker
// encrypts a credential that this device alone can decrypt, if the key of its evidence is its own (TPM 2.0
// Library, part 1, 24 "Credential Protection").
type Identity interface {
	Attester
	// Identity returns what a broker has to know to make a credential.
	Identity(ctx context.Context) (*TPMIdentity, error)
	// Activate decrypts a credential. Evidence has it from now on.
	Activate(ctx context.Context, credential TPMCredential) error
}

// TPMIdentity is a TPM's attestation key and whose it is. Bytes are base64 in JSON.
type TPMIdentity struct {
	// AttestationKey is the TPM2B_PUBLIC of a restricted signing key.
	AttestationKey []byte `json:"ak"`
	// EndorsementKey is the TPM2B_PUBLIC of the key that decrypts credentials.
	EndorsementKey []byte `json:"ek"`
	// Certificate is that of the endorsement key, DER; empty if the TPM has none.
	Certificate []byte `json:"ek_certificate,omitempty"`
}

// TPMCredential is a secret for one TPM, as TPM2_MakeCredential returns it.
type TPMCredential struct {
	// Blob is a TPM2B_ID_OBJECT.
	Blob []byte `json:"blob"`
	// Secret is a TPM2B_ENCRYPTED_SECRET.
	Secret []byte `json:"secret"`
}

// Expected is what evidence has to be bound to.
type Expected struct {
	// ReportData is what [Attester.Evidence] got.
	ReportData []byte
	// InitData is the digest of the VM's initdata; nil means that it is not checked.
	InitData []byte
	// Credential is the secret of the credential that [Identity.Activate] must have decrypted; nil means
	// that the device is not known by its endorsement key.
	Credential []byte
}

// Status is how far a pod's attestation is.
type Status struct {
	// TEE vouches for the VM.
	TEE TEE
	// Broker is the URL of the pod's key broker, "" without.
	Broker string
	// Accepted reports whether the broker has accepted the evidence; Err is why it has not. Both are unset
	// until it has answered.
	Accepted bool
	Err      error
}

// Argument makes the relay's program print the Answer of a sandbox to a nonce, for who may run a command beside the relay.
const Argument = "attestation"

// Answer is what a VM answers to who verifies it.
type Answer struct {
	TEE      TEE             `json:"tee"`
	Evidence json.RawMessage `json:"evidence"`
	// Broker, Accepted and Error are those of [Status].
	Broker   string `json:"broker,omitempty"`
	Accepted bool   `json:"accepted,omitempty"`
	Error    string `json:"error,omitempty"`
}

// ForVerifier returns the report data of evidence for who verifies a pod, from a nonce of 16 to 64 bytes. It differs from all that a
// key broker's client has evidence bound to: who may ask for evidence cannot use it as the pod's.
func ForVerifier(nonce []byte) ([]byte, error) {
	if len(nonce) < 16 || len(nonce) > 64 {
		return nil, fmt.Errorf("a nonce of %d bytes: want 16 to 64", len(nonce))
	}
	sum := sha512.Sum512(append([]byte("outrigger verify\x00"), nonce...))
	return sum[:], nil
}

// Claims are what evidence proves, by names of Trustee's: JSON values for policies.
type Claims map[string]any
