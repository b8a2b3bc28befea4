// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
)

// TPM is the attester of a TPM 2.0. Its attestation key is made from the endorsement seed and a fixed
// template: it is the same after each boot, and nothing of it is stored.
type TPM struct {
	bootLog, log string

	mu         sync.Mutex
	tpm        transport.TPMCloser
	key        *attestationKey // made when it is needed first, then kept in the TPM
	credential []byte
}

var (
	_ Attester        = (*TPM)(nil)
	_ attest.Identity = (*TPM)(nil)
)

type attestationKey struct {
	handle tpm2.NamedHandle
	public []byte // TPM2B_PUBLIC
	spki   []byte
}

// openTPM opens the first TPM that there is. Its error is fs.ErrNotExist, wrapped, if there is none.
func openTPM(o Options) (Attester, error) {
	if len(o.Devices) == 0 {
		o.Devices = []string{"/dev/tpmrm0", "/dev/tpm0"}
	}
	var failed []error
	for _, path := range o.Devices {
		device, err := linuxtpm.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		t, err := NewTPM(device, o)
		if err != nil {
			return nil, errors.Join(err, device.Close())
		}
		return t, nil
	}
	return nil, errors.Join(failed...)
}

// NewTPM returns the attester of an open TPM, of which Close lets go. It finishes what a process that was
// killed has begun in the runtime log.
func NewTPM(tpm transport.TPMCloser, o Options) (*TPM, error) {
	if o.BootLog == "" {
		o.BootLog = "/sys/kernel/security/tpm0/binary_bios_measurements"
	}
	t := &TPM{bootLog: o.BootLog, log: filepath.Join(o.Folder, "runtime.log"), tpm: tpm}
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the runtime log: %w", err)
	}
	if _, err := t.recoverLog(); err != nil {
		return nil, err
	}
	return t, nil
}

// TEE implements [attest.Attester].
func (t *TPM) TEE() attest.TEE { return attest.TPM }

// Close lets go of the TPM's device.
func (t *TPM) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.key != nil {
		_, _ = tpm2.FlushContext{FlushHandle: t.key.handle.Handle}.Execute(t.tpm)
		t.key = nil
	}
	return t.tpm.Close()
}

// Evidence implements [attest.Attester].
func (t *TPM) Evidence(ctx context.Context, reportData []byte) (json.RawMessage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, err := t.attestationKey()
	if err != nil {
		return nil, err
	}
	quote, err := t.quote(ctx, key, attest.FixedSize(reportData, sha256.Size))
	if err != nil {
		return nil, fmt.Errorf("the TPM's quote: %w", err)
	}
	evidence := attest.TPMEvidence{AKPublic: key.spki, Quote: *quote, AttestationKey: key.public, Credential: t.credential}
	if evidence.BootLog, err = readBounded(t.bootLog, attest.MaxBootLog); err != nil {
		return nil, fmt.Errorf("the firmware's event log: %w", err)
	}
	log, err := readBounded(t.log, attest.MaxRuntimeLog)
	if err != nil {
		return nil, fmt.Errorf("the runtime log: %w", err)
	}
	evidence.RuntimeLog = string(log)
	return json.Marshal(evidence)
}

// quotes is how often a quote is tried while registers change.
const quotes = 8

// quote returns a quote of all registers and their values. Both are separate commands, between which the kernel
// may extend a register: then it is tried again.
func (t *TPM) quote(ctx context.Context, key *attestationKey, reportData []byte) (*attest.TPMQuote, error) {
	for range quotes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pcrs, err := t.readPCRs(0, attest.PCRs)
		if err != nil {
			return nil, err
		}
		response, err := tpm2.Quote{
			SignHandle:     tpm2.AuthHandle{Handle: key.handle.Handle, Name: key.handle.Name, Auth: tpm2.PasswordAuth(nil)},
			QualifyingData: tpm2.TPM2BData{Buffer: reportData},
			InScheme:       tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
			PCRSelect:      selection(0, attest.PCRs),
		}.Execute(t.tpm)
		if err != nil {
			return nil, err
		}
		quoted, err := response.Quoted.Contents()
		if err != nil {
			return nil, err
		}
		info, err := quoted.Attested.Quote()
		if err != nil {
			return nil, err
		}
		if digest := sha256.Sum256(bytes.Join(pcrs, nil)); !bytes.Equal(digest[:], info.PCRDigest.Buffer) {
			continue
		}
		quote := &attest.TPMQuote{Message: response.Quoted.Bytes(), Signature: tpm2.Marshal(response.Signature)}
		for _, pcr := range pcrs {
			quote.PCRs = append(quote.PCRs, hex.EncodeToString(pcr))
		}
		return quote, nil
	}
	return nil, fmt.Errorf("its registers changed during each of %d quotes", quotes)
}

// selection selects registers of the SHA-256 bank.
func selection(first, count uint) tpm2.TPMLPCRSelection {
	var mask [attest.PCRs / 8]byte
	for i := first; i < first+count; i++ {
		mask[i/8] |= 1 << (i % 8)
	}
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: tpm2.TPMAlgSHA256, PCRSelect: mask[:]}}}
}

// readPCRs returns the values of registers. TPM2_PCR_Read returns 8 at most.
func (t *TPM) readPCRs(first, count uint) (values [][]byte, err error) {
	for count > 0 {
		n := min(count, 8)
		response, err := tpm2.PCRRead{PCRSelectionIn: selection(first, n)}.Execute(t.tpm)
		if err != nil {
			return nil, fmt.Errorf("reading PCRs: %w", err)
		}
		if len(response.PCRValues.Digests) != int(n) {
			return nil, errors.New("the TPM has no SHA-256 bank of 24 PCRs: enable it in the firmware's settings")
		}
		for _, d := range response.PCRValues.Digests {
			values = append(values, d.Buffer)
		}
		first, count = first+n, count-n
	}
	return values, nil
}

func (t *TPM) readPCR(index uint) (value [sha256.Size]byte, err error) {
	values, err := t.readPCRs(index, 1)
	if err != nil {
		return value, err
	}
	copy(value[:], values[0])
	return value, nil
}

func (t *TPM) extend(index uint, digest [sha256.Size]byte) error {
	_, err := tpm2.PCRExtend{
		PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(index), Auth: tpm2.PasswordAuth(nil)},
		Digests: tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{
			{HashAlg: tpm2.TPMAlgSHA256, Digest: digest[:]},
		}},
	}.Execute(t.tpm)
	if err != nil {
		return fmt.Errorf("extending PCR %d: %w", index, err)
	}
	return nil
}

// BindInitData extends PCR 8 once, with the first 32 bytes of the digest.
func (t *TPM) BindInitData(_ context.Context, digest []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	extension := [sha256.Size]byte(attest.FixedSize(digest, sha256.Size))
	value, err := t.readPCR(attest.InitDataPCR)
	switch {
	case err != nil:
		return err
	case value == [sha256.Size]byte{}:
		return t.extend(attest.InitDataPCR, extension)
	case value == eventlog.Extend([sha256.Size]byte{}, extension):
		return nil
	}
	return fmt.Errorf("PCR %d is neither zero nor that of this initdata: another was measured before, or the boot loader uses this register. Use a UKI without a boot loader, and start the VM again", attest.InitDataPCR)
}

// akTemplate is of a key that signs only what the TPM itself says (restricted), and never leaves it.
var akTemplate = tpm2.TPMTPublic{
	Type:    tpm2.TPMAlgRSA,
	NameAlg: tpm2.TPMAlgSHA256,
	ObjectAttributes: tpm2.TPMAObject{
		FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, NoDA: true,
		Restricted: true, SignEncrypt: true,
	},
	Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{
		Scheme: tpm2.TPMTRSAScheme{
			Scheme:  tpm2.TPMAlgRSASSA,
			Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256}),
		},
		KeyBits: 2048,
	}),
}

func (t *TPM) attestationKey() (*attestationKey, error) {
	if t.key != nil {
		return t.key, nil
	}
	created, err := createPrimary(t.tpm, akTemplate)
	if err != nil {
		return nil, fmt.Errorf("making the TPM's attestation key: %w", err)
	}
	key := &attestationKey{
		handle: tpm2.NamedHandle{Handle: created.ObjectHandle, Name: created.Name},
		public: tpm2.Marshal(created.OutPublic),
	}
	if key.spki, err = spki(created.OutPublic); err != nil {
		return nil, fmt.Errorf("the TPM's attestation key: %w", err)
	}
	t.key = key
	return key, nil
}

func createPrimary(tpm transport.TPM, template tpm2.TPMTPublic) (*tpm2.CreatePrimaryResponse, error) {
	return tpm2.CreatePrimary{
		PrimaryHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHEndorsement, Auth: tpm2.PasswordAuth(nil)},
		InPublic:      tpm2.New2B(template),
	}.Execute(tpm)
}

func spki(public tpm2.TPM2BPublic) ([]byte, error) {
	contents, err := public.Contents()
	if err != nil {
		return nil, err
	}
	key, err := tpm2.Pub(*contents)
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(key)
}

// readBounded returns the bytes of a file, none if there is no file.
func readBounded(path string, bound int64) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, bound+1))
	if err == nil && int64(len(data)) > bound {
		err = fmt.Errorf("%s has more than %d bytes", path, bound)
	}
	return data, err
}
