// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/outrigger/outrigger/internal/attest"
)

// MinSecret is the least size of a credential's secret in bytes.
const MinSecret = 16

// NewCredential returns a credential that only the TPM of an identity can decrypt, if the identity's endorsement key
// has a certificate of one of EndorsementRoots and its attestation key signs only what the TPM says. The secret
// is for one use: that which [Verifier.Verify] gets as [attest.Expected.Credential].
func (v *Verifier) NewCredential(identity attest.TPMIdentity, secret []byte) (attest.TPMCredential, error) {
	if len(secret) < MinSecret {
		return attest.TPMCredential{}, fmt.Errorf("the secret of a credential has %d bytes, want %d", len(secret), MinSecret)
	}
	name, _, err := parseAttestationKey(identity.AttestationKey)
	if err != nil {
		return attest.TPMCredential{}, err
	}
	endorsement, err := parseEndorsementKey(identity.EndorsementKey)
	if err != nil {
		return attest.TPMCredential{}, err
	}
	if err := v.verifyEndorsement(identity.Certificate, endorsement); err != nil {
		return attest.TPMCredential{}, fmt.Errorf("the TPM's endorsement key: %w", err)
	}
	key, err := tpm2.ImportEncapsulationKey(endorsement)
	if err != nil {
		return attest.TPMCredential{}, fmt.Errorf("the TPM's endorsement key: %w", err)
	}
	blob, encrypted, err := tpm2.CreateCredential(rand.Reader, key, name, attest.CredentialFor(secret, name))
	if err != nil {
		return attest.TPMCredential{}, fmt.Errorf("making a credential: %w", err)
	}
	return attest.TPMCredential{
		Blob:   tpm2.Marshal(tpm2.TPM2BIDObject{Buffer: blob}),
		Secret: tpm2.Marshal(tpm2.TPM2BEncryptedSecret{Buffer: encrypted}),
	}, nil
}

// maxPublic is the size of a TPM2B_PUBLIC of an RSA key of 4096 bits in bytes, and more.
const maxPublic = 1 << 10

// parsePublic returns a key, if it is all of a TPM2B_PUBLIC.
func parsePublic(data []byte) (*tpm2.TPMTPublic, error) {
	if len(data) < 2 || len(data) > maxPublic || len(data) != 2+int(data[0])<<8+int(data[1]) {
		return nil, errors.New("is not a TPM2B_PUBLIC")
	}
	public, err := tpm2.Unmarshal[tpm2.TPMTPublic](data[2:])
	if err != nil || public.Type != tpm2.TPMAlgRSA || public.NameAlg != tpm2.TPMAlgSHA256 {
		return nil, errors.New("is not of RSA with names by SHA-256")
	}
	return public, nil
}

func rsaKey(public *tpm2.TPMTPublic) (*rsa.PublicKey, error) {
	key, err := tpm2.Pub(*public)
	if err != nil {
		return nil, err
	}
	return key.(*rsa.PublicKey), nil
}

// parseAttestationKey returns name and SubjectPublicKeyInfo of an attestation key, if the TPM lets it sign only what the
// TPM itself says: a key that signs anything could sign a quote that was never made.
func parseAttestationKey(data []byte) (name, spki []byte, err error) {
	public, err := parsePublic(data)
	if err != nil {
		return nil, nil, fmt.Errorf("the TPM's attestation key %w", err)
	}
	a := public.ObjectAttributes
	if !a.Restricted || !a.SignEncrypt || a.Decrypt || !a.FixedTPM || !a.FixedParent || !a.SensitiveDataOrigin {
		return nil, nil, errors.New("the TPM's attestation key is not a restricted signing key that was made in the TPM and stays there: its quotes could be anybody's")
	}
	key, err := rsaKey(public)
	if err == nil {
		spki, err = x509.MarshalPKIXPublicKey(key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the TPM's attestation key: %w", err)
	}
	full, err := tpm2.ObjectName(public)
	if err != nil {
		return nil, nil, fmt.Errorf("the name of the TPM's attestation key: %w", err)
	}
	return full.Buffer, spki, nil
}

// parseEndorsementKey returns an endorsement key, if it decrypts credentials and nothing else.
func parseEndorsementKey(data []byte) (*tpm2.TPMTPublic, error) {
	public, err := parsePublic(data)
	if err != nil {
		return nil, fmt.Errorf("the TPM's endorsement key %w", err)
	}
	if a := public.ObjectAttributes; !a.Restricted || !a.Decrypt || a.SignEncrypt || !a.FixedTPM || !a.FixedParent {
		return nil, errors.New("the TPM's endorsement key is not a restricted key for decryption that stays in the TPM")
	}
	return public, nil
}

var (
	// subjectAltName has the TPM's maker and model as a directory name, and is critical: Go knows no such names.
	subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}
	// endorsementUsage is tcg-kp-EKCertificate (TCG EK Credential Profile 2.5, 3.2.16).
	endorsementUsage = asn1.ObjectIdentifier{2, 23, 133, 8, 1}
)

// verifyEndorsement verifies that a certificate is of an endorsement key, and whose it is.
func (v *Verifier) verifyEndorsement(der []byte, endorsement *tpm2.TPMTPublic) error {
	if len(der) == 0 {
		return errors.New("it has no certificate: trust its attestation key (ak_public) by a reference value instead")
	}
	if v.EndorsementRoots == nil {
		return errors.New("no root certificates of TPM makers are configured")
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return errors.New("its certificate is not one of X.509")
	}
	certificate.UnhandledCriticalExtensions = slices.DeleteFunc(certificate.UnhandledCriticalExtensions, subjectAltName.Equal)
	usages := len(certificate.ExtKeyUsage) + len(certificate.UnknownExtKeyUsage)
	if usages > 0 && !slices.ContainsFunc(certificate.UnknownExtKeyUsage, endorsementUsage.Equal) {
		return errors.New("its certificate is for something else (extended key usage)")
	}
	if _, err := certificate.Verify(x509.VerifyOptions{
		Roots: v.EndorsementRoots, CurrentTime: v.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err != nil {
		return fmt.Errorf("its certificate: %w", bounded(err))
	}
	key, err := rsaKey(endorsement)
	if err != nil {
		return err
	}
	if !key.Equal(certificate.PublicKey) {
		return errors.New("its certificate is of another key")
	}
	return nil
}
