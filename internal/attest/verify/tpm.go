// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
)

// pcrs are the values of the SHA-256 registers.
type pcrs [attest.PCRs][sha256.Size]byte

func (v *Verifier) tpm(_ context.Context, evidence []byte, want attest.Expected) (attest.Claims, error) {
	var e attest.TPMEvidence
	if err := decode(evidence, &e); err != nil {
		return nil, err
	}
	if err := verifySignature(&e); err != nil {
		return nil, err
	}
	values, err := verifyQuote(&e.Quote, attest.FixedSize(want.ReportData, sha256.Size))
	if err != nil {
		return nil, err
	}
	if want.InitData != nil {
		digest := [sha256.Size]byte(attest.FixedSize(want.InitData, sha256.Size))
		if values[attest.InitDataPCR] != eventlog.Extend([sha256.Size]byte{}, digest) {
			return nil, fmt.Errorf("PCR %d: %w", attest.InitDataPCR, errInitData)
		}
	}
	certified, err := verifyKey(&e, want.Credential)
	if err != nil {
		return nil, err
	}
	claims := attest.Claims{
		"init_data":    hex.EncodeToString(values[attest.InitDataPCR][:]),
		"report_data":  hex.EncodeToString(attest.FixedSize(want.ReportData, sha256.Size)),
		"ak_public":    base64.StdEncoding.EncodeToString(e.AKPublic),
		"ak_certified": certified,
	}
	for i, value := range values {
		claims[fmt.Sprintf("pcr%02d", i)] = hex.EncodeToString(value[:])
	}
	if err := verifyLogs(&e, values, claims); err != nil {
		return nil, err
	}
	return claims, nil
}

// verifySignature verifies that the message is signed by the evidence's own key. Whose that is, is verifyKey's.
func verifySignature(e *attest.TPMEvidence) error {
	public, err := x509.ParsePKIXPublicKey(e.AKPublic)
	key, is := public.(*rsa.PublicKey)
	if err != nil || !is {
		return errors.New("its attestation key is not an RSA key in DER")
	}
	if key.Size() < 256 || key.Size() > 512 {
		return fmt.Errorf("its attestation key has %d bits, want 2048 to 4096", 8*key.Size())
	}
	signature, err := tpm2.Unmarshal[tpm2.TPMTSignature](e.Quote.Signature)
	if err != nil {
		return errors.New("its signature is not a TPMT_SIGNATURE")
	}
	rsassa, err := signature.Signature.RSASSA()
	if err != nil || rsassa.Hash != tpm2.TPMAlgSHA256 {
		return errors.New("its signature is not RSASSA with SHA-256")
	}
	digest := sha256.Sum256(e.Quote.Message)
	if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], rsassa.Sig.Buffer) != nil {
		return errors.New("its signature is not of its attestation key over its message: it is forged")
	}
	return nil
}

// allPCRs is the selection of the 24 registers of one bank.
var allPCRs = []byte{0xff, 0xff, 0xff}

// verifyQuote returns the registers' values, if the message is a quote of all of them in the SHA-256 bank.
func verifyQuote(q *attest.TPMQuote, reportData []byte) (*pcrs, error) {
	quoted, err := tpm2.Unmarshal[tpm2.TPMSAttest](q.Message)
	if err != nil {
		return nil, errors.New("its message is not a TPMS_ATTEST")
	}
	info, err := quoted.Attested.Quote()
	if err != nil || quoted.Magic != tpm2.TPMGeneratedValue || quoted.Type != tpm2.TPMSTAttestQuote {
		return nil, errors.New("its message is not a quote that a TPM made")
	}
	if !bytes.Equal(quoted.ExtraData.Buffer, reportData) {
		return nil, errNonce
	}
	selections := info.PCRSelect.PCRSelections
	if len(selections) != 1 || selections[0].Hash != tpm2.TPMAlgSHA256 || !bytes.Equal(selections[0].PCRSelect, allPCRs) {
		return nil, errors.New("it is not of the 24 registers of the SHA-256 bank: others prove nothing here")
	}
	if len(q.PCRs) != attest.PCRs {
		return nil, fmt.Errorf("it has the values of %d registers, want %d", len(q.PCRs), attest.PCRs)
	}
	var values pcrs
	hash := sha256.New()
	for i, text := range q.PCRs {
		value, err := hex.DecodeString(text)
		if err != nil || len(value) != sha256.Size {
			return nil, fmt.Errorf("its value of PCR %d is not 32 bytes in hex", i)
		}
		copy(values[i][:], value)
		hash.Write(value)
	}
	if !bytes.Equal(hash.Sum(nil), info.PCRDigest.Buffer) {
		return nil, errors.New("its values of registers are not those that were quoted: they were changed")
	}
	return &values, nil
}

// verifyKey verifies what the evidence says of its attestation key, and reports whether the key is known to be that
// of a TPM with a certificate.
func verifyKey(e *attest.TPMEvidence, secret []byte) (certified bool, err error) {
	if e.AttestationKey == nil && secret == nil {
		return false, nil
	}
	name, public, err := parseAttestationKey(e.AttestationKey)
	if err != nil {
		return false, err
	}
	if !bytes.Equal(public, e.AKPublic) {
		return false, errors.New("its attestation key in the TPM's form is another than the one in DER")
	}
	if secret == nil {
		return false, nil
	}
	if subtle.ConstantTimeCompare(e.Credential, attest.CredentialFor(secret, name)) != 1 {
		return false, errors.New("it does not have the credential: its attestation key is not of the TPM whose endorsement key was presented")
	}
	return true, nil
}

// verifyLogs replays logs to registers, and adds their claims.
func verifyLogs(e *attest.TPMEvidence, values *pcrs, claims attest.Claims) error {
	if e.RuntimeLog != "" {
		log, err := eventlog.Parse(e.RuntimeLog)
		if err != nil {
			return err
		}
		if log.Start != [sha256.Size]byte{} {
			return fmt.Errorf("the runtime log begins after PCR %d was extended: it may hide events", eventlog.PCR)
		}
		if log.Replay(len(log.Events)) != values[eventlog.PCR] {
			return fmt.Errorf("the runtime log does not lead to the value of PCR %d: it was changed", eventlog.PCR)
		}
		claims["events"] = log.Events
	}
	if e.BootLog == nil {
		return nil
	}
	if len(e.BootLog) > attest.MaxBootLog {
		return fmt.Errorf("the boot log has %d bytes, more than the bound, %d", len(e.BootLog), attest.MaxBootLog)
	}
	events, err := replayBootLog(e.BootLog, values)
	if err != nil {
		return err
	}
	claims["boot_events"] = events
	return nil
}
