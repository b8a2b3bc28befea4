// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"crypto"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-eventlog/register"
	tdxabi "github.com/google/go-tdx-guest/abi"
	"github.com/google/go-tdx-guest/proto/tdx"
	tdxverify "github.com/google/go-tdx-guest/verify"

	"github.com/outrigger/outrigger/internal/attest"
)

// maxQuote is the size of a TD quote in bytes: those of today have 5 KiB, most of it certificates.
const maxQuote = 64 << 10

func (v *Verifier) tdx(ctx context.Context, evidence []byte, want attest.Expected) (attest.Claims, error) {
	var e attest.TDXEvidence
	if err := decode(evidence, &e); err != nil {
		return nil, err
	}
	if len(e.Quote) > maxQuote {
		return nil, fmt.Errorf("its quote has %d bytes, more than the bound, %d", len(e.Quote), maxQuote)
	}
	parsed, err := tdxabi.QuoteToProto(e.Quote)
	if err != nil {
		return nil, fmt.Errorf("its quote: %w", err)
	}
	quote, is := parsed.(*tdx.QuoteV4)
	if !is {
		return nil, errors.New("its quote is not of version 4")
	}
	options := &tdxverify.Options{Now: v.now()}
	if v.Fetch != nil {
		options.GetCollateral, options.CheckRevocations = true, true
		options.Getter = tdxGetter{ctx, v}
	}
	if err := tdxverify.TdxQuote(quote, options); err != nil {
		return nil, fmt.Errorf("its signature or certificates: %w", err)
	}
	claims, err := tdxClaims(quote, want, v.Fetch != nil)
	if err != nil || e.EventLog == nil {
		return claims, err
	}
	claims["boot_events"], err = replayCCEL(e.EventLog, quote.TdQuoteBody.Rtmrs)
	if err != nil {
		return nil, err
	}
	return claims, nil
}

func replayCCEL(log []byte, rtmrs [][]byte) ([]BootEvent, error) {
	if len(log) > attest.MaxBootLog {
		return nil, fmt.Errorf("the boot log has %d bytes, more than the bound, %d", len(log), attest.MaxBootLog)
	}
	var registers []register.MR
	for i, value := range rtmrs {
		registers = append(registers, register.FakeMR{Index: i + 1, Digest: value, DigestAlg: crypto.SHA384})
	}
	return replay(log, registers)
}

// Bits of TDATTRIBUTES (Intel TDX Module Base Architecture Specification, 11.2): DEBUG is the first, and any other of
// the first byte makes the TD not trusted too.
var tdAttributes = map[string]uint{"debug": 0, "septve_disable": 28, "protection_keys": 30, "key_locker": 31, "perfmon": 63}

const tdUntrusted = 0xff

// tdxClaims returns what a quote says that is known to be true.
func tdxClaims(quote *tdx.QuoteV4, want attest.Expected, collateral bool) (attest.Claims, error) {
	td := quote.TdQuoteBody
	attributes := binary.LittleEndian.Uint64(td.TdAttributes)
	if attributes&tdUntrusted != 0 {
		return nil, errDebug
	}
	if !bytes.Equal(td.ReportData, attest.FixedSize(want.ReportData, len(td.ReportData))) {
		return nil, errNonce
	}
	if want.InitData != nil && !bytes.Equal(td.MrConfigId, attest.FixedSize(want.InitData, len(td.MrConfigId))) {
		return nil, fmt.Errorf("MRCONFIGID: %w", errInitData)
	}
	flags := attest.Claims{}
	for name, bit := range tdAttributes {
		flags[name] = attributes>>bit&1 != 0
	}
	body := attest.Claims{
		"tcb_svn": hex.EncodeToString(td.TeeTcbSvn), "mr_seam": hex.EncodeToString(td.MrSeam),
		"mrsigner_seam": hex.EncodeToString(td.MrSignerSeam), "seam_attributes": hex.EncodeToString(td.SeamAttributes),
		"td_attributes": hex.EncodeToString(td.TdAttributes), "xfam": hex.EncodeToString(td.Xfam),
		"mr_td": hex.EncodeToString(td.MrTd), "mr_config_id": hex.EncodeToString(td.MrConfigId),
		"mr_owner": hex.EncodeToString(td.MrOwner), "mr_owner_config": hex.EncodeToString(td.MrOwnerConfig),
		"report_data": hex.EncodeToString(td.ReportData),
	}
	for i, value := range td.Rtmrs {
		body[fmt.Sprintf("rtmr_%d", i)] = hex.EncodeToString(value)
	}
	return attest.Claims{
		"quote":              attest.Claims{"body": body},
		"td_attributes":      flags,
		"report_data":        hex.EncodeToString(td.ReportData),
		"init_data":          hex.EncodeToString(td.MrConfigId),
		"collateral_checked": collateral,
	}, nil
}

// tdxGetter is how the library fetches.
type tdxGetter struct {
	ctx context.Context
	*Verifier
}

func (g tdxGetter) Get(url string) (map[string][]string, []byte, error) { return g.Fetch(g.ctx, url) }
