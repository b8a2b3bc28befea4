// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-sev-guest/abi"
	sevsnp "github.com/google/go-sev-guest/proto/sevsnp"
	snpverify "github.com/google/go-sev-guest/verify"

	"github.com/outrigger/outrigger/internal/attest"
)

// errDebug is of a VM into which its host may look.
var errDebug = errors.New("debug is allowed: the host can read and change the VM's memory, so nothing is proven")

func (v *Verifier) snp(ctx context.Context, evidence []byte, want attest.Expected) (attest.Claims, error) {
	var e attest.SNPEvidence
	if err := decode(evidence, &e); err != nil {
		return nil, err
	}
	if e.Report.SigAlgo != 1 {
		return nil, errors.New("its signature is not ECDSA P-384 with SHA-384")
	}
	raw, err := e.Report.Bytes()
	if err != nil {
		return nil, err
	}
	report, err := abi.ReportToProto(raw)
	if err != nil {
		return nil, fmt.Errorf("its report: %w", err)
	}
	chain, err := snpCertificates(e.Certificates)
	if err != nil {
		return nil, err
	}
	options := &snpverify.Options{DisableCertFetching: true, Now: v.now()}
	if v.Fetch != nil {
		options.DisableCertFetching, options.CheckRevocations = false, true
		options.Getter = snpGetter{ctx, v}
	}
	if err := snpverify.SnpAttestationContext(ctx, &sevsnp.Attestation{Report: report, CertificateChain: chain}, options); err != nil {
		return nil, fmt.Errorf("its signature or certificates: %w", err)
	}
	return snpClaims(&e.Report, want, v.Fetch != nil)
}

// snpCertificates returns what of the host's table is needed. Roots are the library's.
func snpCertificates(certificates []attest.SNPCertificate) (*sevsnp.CertificateChain, error) {
	chain := &sevsnp.CertificateChain{Extras: map[string][]byte{}}
	for _, c := range certificates {
		if len(c.Data) > maxCertificate {
			return nil, fmt.Errorf("a certificate has %d bytes, more than the bound, %d", len(c.Data), maxCertificate)
		}
		switch c.Type {
		case "VCEK":
			chain.VcekCert = c.Data
		case "VLEK":
			chain.VlekCert = c.Data
		case "ASK":
			chain.AskCert = c.Data
		case "ARK":
			chain.ArkCert = c.Data
		}
	}
	return chain, nil
}

const maxCertificate = 16 << 10

// Bits of a guest's policy and of the platform (AMD 56860, tables 10 and 24).
const (
	policySMT, policyMigrate, policyDebug, policySingleSocket = 1 << 16, 1 << 18, 1 << 19, 1 << 20

	platformSMT, platformTSME = 1 << 0, 1 << 1
)

// snpClaims returns what a report says that is known to be true.
func snpClaims(r *attest.SNPReport, want attest.Expected, revocations bool) (attest.Claims, error) {
	if r.Policy&policyDebug != 0 {
		return nil, errDebug
	}
	if !bytes.Equal(r.ReportData[:], attest.FixedSize(want.ReportData, len(r.ReportData))) {
		return nil, errNonce
	}
	if want.InitData != nil && !bytes.Equal(r.HostData[:], attest.FixedSize(want.InitData, len(r.HostData))) {
		return nil, fmt.Errorf("HOSTDATA: %w", errInitData)
	}
	return attest.Claims{
		"policy_abi_major":     r.Policy >> 8 & 0xff,
		"policy_abi_minor":     r.Policy & 0xff,
		"policy_smt_allowed":   r.Policy&policySMT != 0,
		"policy_migrate_ma":    r.Policy&policyMigrate != 0,
		"policy_debug_allowed": false,
		"policy_single_socket": r.Policy&policySingleSocket != 0,

		"reported_tcb_bootloader": r.ReportedTCB.Bootloader,
		"reported_tcb_tee":        r.ReportedTCB.TEE,
		"reported_tcb_snp":        r.ReportedTCB.SNP,
		"reported_tcb_microcode":  r.ReportedTCB.Microcode,

		"platform_smt_enabled":  r.PlatInfo&platformSMT != 0,
		"platform_tsme_enabled": r.PlatInfo&platformTSME != 0,

		"measurement": hex.EncodeToString(r.Measurement[:]),
		"report_data": hex.EncodeToString(r.ReportData[:]),
		"init_data":   hex.EncodeToString(r.HostData[:]),
		"chip_id":     hex.EncodeToString(r.ChipID[:]),

		"vmpl":                r.VMPL,
		"revocations_checked": revocations,
	}, nil
}

// snpGetter is how the library fetches.
type snpGetter struct {
	ctx context.Context
	*Verifier
}

func (g snpGetter) Get(url string) ([]byte, error) { return g.GetContext(g.ctx, url) }

func (g snpGetter) GetContext(ctx context.Context, url string) ([]byte, error) {
	_, body, err := g.Fetch(ctx, url)
	return body, err
}
