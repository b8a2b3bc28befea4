// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"bytes"
	"context"
	"encoding/asn1"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/outrigger/outrigger/internal/attest"
)

// Where a TPM has its endorsement key and certificate of RSA 2048 (TCG EK Credential Profile 2.5, 2.2.1.4;
// TCG TPM v2.0 Provisioning Guidance, 7.8).
const (
	endorsementKey         tpm2.TPMHandle = 0x81010001
	endorsementCertificate tpm2.TPMHandle = 0x01c00002
)

// maxCertificate is the size in bytes of an endorsement certificate.
const maxCertificate = 8 << 10

// Identity implements [attest.Identity].
func (t *TPM) Identity(context.Context) (*attest.TPMIdentity, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, err := t.attestationKey()
	if err != nil {
		return nil, err
	}
	ek, done, err := t.endorsementKey()
	if err != nil {
		return nil, err
	}
	defer done()
	certificate, err := t.certificate()
	if err != nil {
		return nil, fmt.Errorf("the certificate of the TPM's endorsement key: %w", err)
	}
	return &attest.TPMIdentity{AttestationKey: key.public, EndorsementKey: tpm2.Marshal(ek.public), Certificate: certificate}, nil
}

// Activate implements [attest.Identity].
func (t *TPM) Activate(_ context.Context, credential attest.TPMCredential) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	blob, err := tpm2.Unmarshal[tpm2.TPM2BIDObject](credential.Blob)
	if err != nil {
		return fmt.Errorf("the credential's blob is not a TPM2B_ID_OBJECT: %w", err)
	}
	secret, err := tpm2.Unmarshal[tpm2.TPM2BEncryptedSecret](credential.Secret)
	if err != nil {
		return fmt.Errorf("the credential's secret is not a TPM2B_ENCRYPTED_SECRET: %w", err)
	}
	key, err := t.attestationKey()
	if err != nil {
		return err
	}
	ek, done, err := t.endorsementKey()
	if err != nil {
		return err
	}
	defer done()
	response, err := tpm2.ActivateCredential{
		ActivateHandle: tpm2.AuthHandle{Handle: key.handle.Handle, Name: key.handle.Name, Auth: tpm2.PasswordAuth(nil)},
		KeyHandle:      tpm2.AuthHandle{Handle: ek.handle, Name: ek.name, Auth: tpm2.Policy(tpm2.TPMAlgSHA256, 16, endorsementPolicy)},
		CredentialBlob: *blob,
		Secret:         *secret,
	}.Execute(t.tpm)
	if err != nil {
		return fmt.Errorf("the TPM does not decrypt the credential, which is for another TPM or key: %w", err)
	}
	t.credential = response.CertInfo.Buffer
	return nil
}

type endorsement struct {
	handle tpm2.TPMHandle
	name   tpm2.TPM2BName
	public tpm2.TPM2BPublic
}

// endorsementKey returns the TPM's key that decrypts credentials, and what lets go of it: the one that its maker
// or the cloud has left there, else the one of the default template.
func (t *TPM) endorsementKey() (*endorsement, func(), error) {
	if read, err := (tpm2.ReadPublic{ObjectHandle: endorsementKey}).Execute(t.tpm); err == nil {
		if err := checkEndorsementKey(read.OutPublic); err != nil {
			return nil, nil, fmt.Errorf("the TPM's persistent key %#x: %w", endorsementKey, err)
		}
		return &endorsement{endorsementKey, read.Name, read.OutPublic}, func() {}, nil
	}
	created, err := createPrimary(t.tpm, tpm2.RSAEKTemplate)
	if err != nil {
		return nil, nil, fmt.Errorf("making the TPM's endorsement key: %w", err)
	}
	return &endorsement{created.ObjectHandle, created.Name, created.OutPublic}, func() {
		_, _ = tpm2.FlushContext{FlushHandle: created.ObjectHandle}.Execute(t.tpm)
	}, nil
}

// checkEndorsementKey returns an error for a key that is not of the default template, which we could not use.
func checkEndorsementKey(public tpm2.TPM2BPublic) error {
	key, err := public.Contents()
	if err != nil {
		return err
	}
	want := tpm2.RSAEKTemplate
	if key.Type != want.Type || key.ObjectAttributes != want.ObjectAttributes || !bytes.Equal(key.AuthPolicy.Buffer, want.AuthPolicy.Buffer) {
		return errors.New("it is not an RSA endorsement key of the TCG's default template (EK Credential Profile, template L-1). Evict it with tpm2_evictcontrol")
	}
	return nil
}

// endorsementPolicy satisfies the policy of the default template: TPM2_PolicySecret(TPM_RH_ENDORSEMENT).
func endorsementPolicy(tpm transport.TPM, session tpm2.TPMISHPolicy, nonce tpm2.TPM2BNonce) error {
	_, err := tpm2.PolicySecret{
		AuthHandle:    tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)},
		PolicySession: session,
		NonceTPM:      nonce,
	}.Execute(tpm)
	return err
}

// certificate returns that of the endorsement key, or nil if the TPM has none.
func (t *TPM) certificate() ([]byte, error) {
	index, err := tpm2.NVReadPublic{NVIndex: endorsementCertificate}.Execute(t.tpm)
	if err != nil {
		return nil, nil // The index is not defined.
	}
	public, err := index.NVPublic.Contents()
	if err != nil {
		return nil, err
	}
	if public.DataSize > maxCertificate {
		return nil, fmt.Errorf("NV index %#x has %d bytes, more than the bound, %d", endorsementCertificate, public.DataSize, maxCertificate)
	}
	handle := tpm2.AuthHandle{Handle: endorsementCertificate, Name: index.NVName, Auth: tpm2.PasswordAuth(nil)}
	var data []byte
	for uint16(len(data)) < public.DataSize {
		// 512 bytes are in the bound of every TPM (TPM_PT_NV_BUFFER_MAX).
		read, err := tpm2.NVRead{AuthHandle: handle, NVIndex: tpm2.NamedHandle{Handle: handle.Handle, Name: handle.Name},
			Size: min(512, public.DataSize-uint16(len(data))), Offset: uint16(len(data))}.Execute(t.tpm)
		if err != nil {
			return nil, err
		}
		if len(read.Data.Buffer) == 0 {
			return nil, errors.New("the TPM returns less than it has")
		}
		data = append(data, read.Data.Buffer...)
	}
	// What is reserved may be longer than the certificate.
	var der asn1.RawValue
	if _, err := asn1.Unmarshal(data, &der); err != nil {
		return nil, fmt.Errorf("NV index %#x has no certificate: %w", endorsementCertificate, err)
	}
	return der.FullBytes, nil
}
