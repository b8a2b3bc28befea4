// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"
	"github.com/google/go-eventlog/testdata"
	snptest "github.com/google/go-sev-guest/verify/testdata"
	tdxabi "github.com/google/go-tdx-guest/abi"
	"github.com/google/go-tdx-guest/proto/tdx"
	tdxtest "github.com/google/go-tdx-guest/testing/testdata"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/test/swtpm"
)

// at returns a verifier at a time when the certificates of the libraries' quotes were valid.
func at(year int, month time.Month) *Verifier {
	return &Verifier{Now: func() time.Time { return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC) }}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// snpEvidence is of a real machine: the report that go-sev-guest ships.
func snpEvidence(t testing.TB, raw []byte) attest.SNPEvidence {
	t.Helper()
	report, err := attest.ParseSNPReport(raw)
	if err != nil {
		t.Fatal(err)
	}
	return attest.SNPEvidence{Report: *report, Certificates: []attest.SNPCertificate{{Type: "VCEK", Data: snptest.VcekBytes}}}
}

var snpWant = attest.Expected{ReportData: []byte{1, 2, 3, 4, 5}}

// Its signature is AMD's, and its VM could be debugged.
func TestRealReportOfSNP(t *testing.T) {
	ctx, v := context.Background(), at(2022, time.October)
	raw := snptest.AttestationBytes[:attest.SNPReportSize]
	real := snpEvidence(t, raw)
	if err := v.verifySNP(ctx, &real); err != nil {
		t.Fatal(err)
	}
	_, err := v.Verify(ctx, attest.SNP, marshal(t, real), snpWant)
	wantError(t, "debug", err, "debug is allowed")
	// Whatever is signed (bytes 0 to 29Fh) or signs (to 32Fh) and is changed, is noticed.
	for i := 0; i < 0x330; i += 7 {
		changed := flipped(raw, i)
		report, err := attest.ParseSNPReport(changed)
		if err != nil {
			t.Fatal(err)
		}
		if back, _ := report.Bytes(); bytes.Equal(back, raw) {
			continue // a reserved byte, which evidence does not have
		}
		e := snpEvidence(t, raw)
		e.Report = *report
		if err := v.verifySNP(ctx, &e); err == nil {
			t.Errorf("a report with another byte %#x was accepted", i)
		}
	}
}

func TestReportOfSNPIsRefused(t *testing.T) {
	ctx := context.Background()
	raw := snptest.AttestationBytes[:attest.SNPReportSize]
	for _, c := range []struct {
		name   string
		now    *Verifier
		change func(e *attest.SNPEvidence, want *attest.Expected)
		err    string
	}{
		{"a credential", nil, func(_ *attest.SNPEvidence, w *attest.Expected) { w.Credential = []byte("x") }, "no endorsement key"},
		{"no certificate", nil, func(e *attest.SNPEvidence, _ *attest.Expected) { e.Certificates = nil }, "certificate"},
		{"a certificate of nothing", nil, func(e *attest.SNPEvidence, _ *attest.Expected) { e.Certificates[0].Data = []byte("x") }, "certificate"},
		{"a huge certificate", nil, func(e *attest.SNPEvidence, _ *attest.Expected) { e.Certificates[0].Data = make([]byte, 1<<16) }, "bound"},
		{"expired", at(2090, time.January), func(*attest.SNPEvidence, *attest.Expected) {}, "expired"},
		{"other algorithm", nil, func(e *attest.SNPEvidence, _ *attest.Expected) { e.Report.SigAlgo = 2 }, "not ECDSA"},
		{"other version", nil, func(e *attest.SNPEvidence, _ *attest.Expected) { e.Report.Version = 99 }, "version"},
	} {
		e, want := snpEvidence(t, raw), snpWant
		c.change(&e, &want)
		v := c.now
		if v == nil {
			v = at(2022, time.October)
		}
		_, err := v.Verify(ctx, attest.SNP, marshal(t, e), want)
		wantError(t, c.name, err, c.err)
	}
}

// A report cannot be signed here: what is checked after the signature.
func TestClaimsOfSNP(t *testing.T) {
	report := snpEvidence(t, snptest.AttestationBytes[:attest.SNPReportSize]).Report
	report.Policy &^= policyDebug
	copy(report.HostData[:], "digest of initdata")
	for _, c := range []struct {
		name string
		want attest.Expected
		err  string
	}{
		{"good", attest.Expected{ReportData: snpWant.ReportData, InitData: append([]byte("digest of initdata"), make([]byte, 40)...)}, ""},
		{"replayed", attest.Expected{ReportData: []byte("fresh")}, "it is old"},
		{"another initdata", attest.Expected{ReportData: snpWant.ReportData, InitData: []byte("another")}, "HOSTDATA"},
	} {
		claims, err := snpClaims(&report, c.want, false)
		if c.err != "" {
			wantError(t, c.name, err, c.err)
			continue
		}
		if m, _ := claims["measurement"].(string); err != nil || len(m) != 96 || claims["policy_debug_allowed"] != false || claims["reported_tcb_microcode"] != uint8(68) {
			t.Errorf("%s: %v, %v", c.name, claims, err)
		}
	}
}

// Fetching is of what is missing, and by the verifier's function alone.
func TestCertificatesOfSNPAreFetched(t *testing.T) {
	v := at(2022, time.October)
	var asked []string
	v.Fetch = func(_ context.Context, url string) (map[string][]string, []byte, error) {
		asked = append(asked, url)
		return nil, nil, errors.New("the network is down")
	}
	e := snpEvidence(t, snptest.AttestationBytes[:attest.SNPReportSize])
	e.Certificates = nil
	_, err := v.Verify(context.Background(), attest.SNP, marshal(t, e), snpWant)
	wantError(t, "no network", err, "the network is down")
	if len(asked) == 0 {
		t.Error("nothing was fetched")
	}
}

// The array forms of Trustee's JSON, and what versions of reports and processors differ in.
func TestReportOfSNPByFields(t *testing.T) {
	raw := make([]byte, attest.SNPReportSize)
	for i := range raw {
		raw[i] = byte(i)
	}
	for _, c := range []struct {
		name            string
		version, family byte
		has, hasNot     string
	}{
		{"Milan, version 2", 2, 0, `"cpuid_fam_id":null`, `"fmc":0`},
		{"Genoa, version 3", 3, 0x19, `"cpuid_fam_id":25`, `"launch_mit_vector":1`},
		{"Turin, version 5", 5, 0x1a, `"current_tcb":{"fmc":56,"bootloader":57,"tee":58,"snp":59,"microcode":63}`, `null`},
	} {
		copy(raw, []byte{c.version, 0, 0, 0})
		raw[0x188] = c.family
		report, err := attest.ParseSNPReport(raw)
		if err != nil {
			t.Fatal(err)
		}
		data := marshal(t, report)
		if !bytes.Contains(data, []byte(c.has)) || bytes.Contains(data, []byte(c.hasNot)) || !bytes.Contains(data, []byte(`"family_id":[16,17,`)) {
			t.Errorf("%s: want %s and not %s in %s", c.name, c.has, c.hasNot, data)
		}
		var again attest.SNPReport
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		first, err := report.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := again.Bytes(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: the report changed on its way through JSON: %v", c.name, err)
		}
		for _, named := range [][2]int{{0, 0x4c}, {0x50, 0x180}, {0x1a0, 0x1e0}, {0x2a0, 0x330}} {
			got, want := bytes.Clone(first[named[0]:named[1]]), bytes.Clone(raw[named[0]:named[1]])
			if named[0] == 0 { // with bytes of the current TCB that are reserved
				clear(got[0x38:0x40])
				clear(want[0x38:0x40])
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: bytes %#x to %#x are lost", c.name, named[0], named[1])
			}
		}
	}
	if _, err := attest.ParseSNPReport(raw[1:]); err == nil {
		t.Error("a report that is too short was accepted")
	}
}

func tdxWant(t testing.TB) (want attest.Expected) {
	t.Helper()
	quote := tdxQuote(t)
	return attest.Expected{ReportData: quote.TdQuoteBody.ReportData, InitData: quote.TdQuoteBody.MrConfigId}
}

func tdxQuote(t testing.TB) *tdx.QuoteV4 {
	t.Helper()
	quote, err := tdxabi.QuoteToProto(tdxtest.RawQuote)
	if err != nil {
		t.Fatal(err)
	}
	return quote.(*tdx.QuoteV4)
}

func TestRealQuoteOfTDX(t *testing.T) {
	ctx, v, want := context.Background(), at(2023, time.August), tdxWant(t)
	claims, err := v.Verify(ctx, attest.TDX, marshal(t, attest.TDXEvidence{Quote: tdxtest.RawQuote}), want)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := claims["quote"].(attest.Claims)["body"].(attest.Claims)
	for _, name := range []string{"mr_td", "rtmr_0", "rtmr_1", "rtmr_2", "rtmr_3"} {
		if value, _ := body[name].(string); len(value) != 96 {
			t.Errorf("claim %s is %v", name, body[name])
		}
	}
	if flags := claims["td_attributes"].(attest.Claims); flags["debug"] != false || flags["protection_keys"] != true {
		t.Errorf("attributes are %v", flags)
	}
	// Header, TD and signature: 48 + 584 + 4 + 64 bytes.
	for i := 0; i < 700; i += 7 {
		e := attest.TDXEvidence{Quote: flipped(tdxtest.RawQuote, i)}
		if _, err := v.Verify(ctx, attest.TDX, marshal(t, e), want); err == nil {
			t.Errorf("a quote with another byte %d was accepted", i)
		}
	}
}

func TestQuoteOfTDXIsRefused(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		now    *Verifier
		change func(e *attest.TDXEvidence, want *attest.Expected)
		err    string
	}{
		{"replayed", nil, func(_ *attest.TDXEvidence, w *attest.Expected) { w.ReportData = []byte("fresh") }, "it is old"},
		{"another initdata", nil, func(_ *attest.TDXEvidence, w *attest.Expected) { w.InitData = []byte("another") }, "MRCONFIGID"},
		{"expired", at(2090, time.January), func(*attest.TDXEvidence, *attest.Expected) {}, "expired"},
		{"truncated", nil, func(e *attest.TDXEvidence, _ *attest.Expected) { e.Quote = e.Quote[:1000] }, "its quote"},
		{"none", nil, func(e *attest.TDXEvidence, _ *attest.Expected) { e.Quote = nil }, "its quote"},
		{"huge", nil, func(e *attest.TDXEvidence, _ *attest.Expected) { e.Quote = make([]byte, 1<<20) }, "bound"},
		{"another root", nil, func(e *attest.TDXEvidence, _ *attest.Expected) {
			e.Quote = bytes.ReplaceAll(e.Quote, []byte("-----BEGIN"), []byte("-----Begin"))
		}, "Intel's root"},
		{"a log of another machine", nil, func(e *attest.TDXEvidence, _ *attest.Expected) { e.EventLog = testdata.Ubuntu2404AmdSevSnpEventLog }, "boot log"},
	} {
		e, want, v := attest.TDXEvidence{Quote: tdxtest.RawQuote}, tdxWant(t), c.now
		if v == nil {
			v = at(2023, time.August)
		}
		c.change(&e, &want)
		claims, err := v.Verify(ctx, attest.TDX, marshal(t, e), want)
		wantError(t, c.name, err, c.err)
		if claims != nil {
			t.Errorf("%s: there are claims beside the error", c.name)
		}
	}
	// A quote cannot be signed here: the check alone.
	quote := tdxQuote(t)
	quote.TdQuoteBody.TdAttributes[0] |= 1
	_, err := tdxClaims(quote, tdxWant(t), false)
	wantError(t, "debug", err, "debug")
}

// The log's registers 1 to 4 are the RTMRs. What follows its events is memory that firmware reserved.
func TestEventLogOfTDX(t *testing.T) {
	log := testdata.Ubuntu2404AmdSevSnpEventLog
	parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{})
	if err != nil {
		t.Fatal(err)
	}
	rtmrs := [][]byte{make([]byte, 48), make([]byte, 48), make([]byte, 48), make([]byte, 48)}
	measured := 0
	for _, e := range parsed.Events(register.HashSHA384) {
		if i := e.Index - 1; i >= 0 && i < 4 {
			value := sha512.Sum384(append(rtmrs[i], e.Digest...))
			rtmrs[i] = value[:]
			measured++
		}
	}
	for name, padding := range map[string]string{"nothing": "", "zeros": strings.Repeat("\x00", 5000), "ones": strings.Repeat("\xff", 5000)} {
		padded := append(bytes.Clone(log), padding...)
		if trimmed := attest.TrimBootLog(padded); !bytes.Equal(trimmed, log) {
			t.Errorf("%s after a log of %d bytes: %d bytes are left", name, len(log), len(trimmed))
		}
		if events, err := replayCCEL(padded, rtmrs); err != nil || len(events) != measured {
			t.Errorf("%s after a log: %d events, want %d: %v", name, len(events), measured, err)
		}
	}
	rtmrs[3] = bytes.Repeat([]byte{1}, 48)
	_, err = replayCCEL(log, rtmrs)
	wantError(t, "another register", err, "boot log")
}

func TestSample(t *testing.T) {
	ctx := context.Background()
	evidence := marshal(t, attest.SampleEvidence{SVN: "1", ReportData: []byte("nonce")})
	want := attest.Expected{ReportData: []byte("nonce"), InitData: []byte("digest")}
	_, err := new(Verifier).Verify(ctx, attest.Sample, evidence, want)
	wantError(t, "not allowed", err, "proves nothing")
	v := &Verifier{AllowSample: true}
	if claims, err := v.Verify(ctx, attest.Sample, evidence, want); err != nil || claims["svn"] != "1" {
		t.Errorf("allowed: %v, %v", claims, err)
	}
	want.ReportData = []byte("fresh")
	_, err = v.Verify(ctx, attest.Sample, evidence, want)
	wantError(t, "replayed", err, "it is old")
}

func FuzzEvidence(f *testing.F) {
	for _, tee := range []attest.TEE{attest.Sample, attest.TPM, attest.SNP, attest.TDX} {
		f.Add(string(tee), []byte(`{}`))
	}
	f.Add("sample", marshal(f, attest.SampleEvidence{SVN: "1", ReportData: []byte("nonce")}))
	f.Add("snp", marshal(f, snpEvidence(f, snptest.AttestationBytes[:attest.SNPReportSize])))
	f.Add("tdx", marshal(f, attest.TDXEvidence{Quote: tdxtest.RawQuote, EventLog: testdata.Ubuntu2404AmdSevSnpEventLog[:2000]}))
	m := newMachine(f, swtpm.Start(f))
	f.Add("tpm", marshal(f, m.boot(f)))
	identity := marshal(f, m.identity(f))
	f.Add("identity", identity)
	f.Add("quote", marshal(f, m.evidence(f).Quote))
	f.Add("log", testdata.Ubuntu2404AmdSevSnpEventLog)
	v := &Verifier{AllowSample: true, EndorsementRoots: m.verifier.EndorsementRoots}
	// What comes after a signature, which anybody can make with a key of his own, is tried alone.
	f.Fuzz(func(t *testing.T, tee string, data []byte) {
		switch tee {
		case "identity":
			var i attest.TPMIdentity
			if json.Unmarshal(data, &i) == nil {
				_, _ = v.NewCredential(i, m.want.Credential)
			}
		case "quote":
			var q attest.TPMQuote
			if json.Unmarshal(data, &q) == nil {
				_, _ = verifyQuote(&q, attest.FixedSize(m.want.ReportData, 32))
			}
		case "log":
			if len(data) <= attest.MaxBootLog {
				_, _ = replayBootLog(data, &pcrs{})
			}
		default:
			claims, err := v.Verify(context.Background(), attest.TEE(tee), data, attest.Expected{ReportData: []byte("fresh")})
			var s attest.SampleEvidence
			if err == nil && (tee != "sample" || json.Unmarshal(data, &s) != nil || string(s.ReportData) != "fresh") {
				t.Errorf("accepted: %v", claims)
			}
			if err != nil && len(err.Error()) > 4*maxError {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		}
	})
}
