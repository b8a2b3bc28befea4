// SPDX-License-Identifier: Apache-2.0

// Package verify says what evidence of a VM proves. Claims have the names that Trustee's verifiers give them,
// so that a policy for one is a policy for the other. It is not for guests: what it links is large.
package verify

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/internal/attest"
)

// Verifier verifies evidence. Its zero value trusts AMD, Intel, and no TPM's maker, and fetches nothing.
type Verifier struct {
	// AllowSample accepts evidence that proves nothing.
	AllowSample bool
	// EndorsementRoots are whom to believe that an endorsement key is of a TPM: the certificates of makers, or of
	// the authorities below them that sign; a TPM has no certificates between. Nil trusts nobody.
	EndorsementRoots *x509.CertPool
	// Fetch gets certificates, revocation lists and statements on security versions from AMD and Intel. Nil works
	// offline: with the certificates that evidence brings, without lists and statements.
	Fetch func(ctx context.Context, url string) (header map[string][]string, body []byte, err error)
	// Now is the time at which certificates have to be valid. Default: time.Now.
	Now func() time.Time
}

// Verify returns what evidence proves, or an error that says what is wrong with it: forged, stale, of another
// initdata, of a VM that its host may debug. Errors quote nothing of the evidence at length.
//
// Of a TPM without a credential the claim ak_certified is false: then evidence proves something only to who knows
// the key, the claim ak_public, to be of a TPM.
func (v *Verifier) Verify(ctx context.Context, tee attest.TEE, evidence json.RawMessage, want attest.Expected) (attest.Claims, error) {
	verify, known := map[attest.TEE]func(context.Context, []byte, attest.Expected) (attest.Claims, error){
		attest.Sample: v.sample, attest.TPM: v.tpm, attest.SNP: v.snp, attest.TDX: v.tdx,
	}[tee]
	if !known {
		return nil, fmt.Errorf("no verifier for evidence of %.32q: the known ones are sample, snp, tdx and tpm", tee)
	}
	if len(evidence) > attest.MaxEvidence {
		return nil, fmt.Errorf("the evidence has %d bytes, more than the bound, %d", len(evidence), attest.MaxEvidence)
	}
	if len(want.ReportData) == 0 {
		return nil, errors.New("evidence is to be verified without report data: it could be anybody's, and old")
	}
	if want.Credential != nil && tee != attest.TPM {
		return nil, fmt.Errorf("a credential is expected of evidence of %s, which has no endorsement key", tee)
	}
	if want.Credential != nil && len(want.Credential) < MinSecret {
		return nil, fmt.Errorf("the secret of a credential has %d bytes, want %d", len(want.Credential), MinSecret)
	}
	claims, err := verify(ctx, evidence, want)
	if err != nil {
		return nil, fmt.Errorf("evidence of %s: %w", tee, bounded(err))
	}
	return claims, nil
}

// maxError is the length of an error in bytes. Libraries put what they read into theirs.
const maxError = 512

func bounded(err error) error {
	if text := err.Error(); len(text) > maxError {
		return fmt.Errorf("%.*q and more", maxError, text)
	}
	return err
}

func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

func (v *Verifier) sample(_ context.Context, evidence []byte, want attest.Expected) (attest.Claims, error) {
	if !v.AllowSample {
		return nil, errors.New("sample evidence proves nothing, anybody can make it: it is refused unless sample evidence is allowed, for tests")
	}
	var e attest.SampleEvidence
	if err := decode(evidence, &e); err != nil {
		return nil, err
	}
	if !bytes.Equal(e.ReportData, want.ReportData) {
		return nil, errNonce
	}
	claims := attest.Claims{"svn": e.SVN, "report_data": e.ReportData}
	if want.InitData != nil {
		claims["init_data"] = want.InitData // as Trustee: for tests of policies
	}
	return claims, nil
}

var (
	errNonce    = errors.New("its report data is not what was asked for: it is old, or was made for another")
	errInitData = errors.New("the VM has another initdata than expected, or its digest was not measured")
)

func decode(evidence []byte, into any) error {
	if err := json.Unmarshal(evidence, into); err != nil {
		return fmt.Errorf("it does not have the form of Trustee's: %w", err)
	}
	return nil
}
