// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-eventlog/register"
	"github.com/google/go-eventlog/tcg"
	logs "github.com/google/go-eventlog/testdata"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/test/swtpm"
)

// machine is a VM with a TPM that did what a start of a pod does.
type machine struct {
	*attester.TPM
	tpm      transport.TPM
	verifier *Verifier
	want     attest.Expected
}

func newMachine(t testing.TB, s *swtpm.TPM) *machine {
	t.Helper()
	tpm := s.Open(t)
	folder := t.TempDir()
	a, err := attester.NewTPM(tpm, attester.Options{Folder: folder, BootLog: filepath.Join(folder, "none")})
	if err != nil {
		t.Fatal(err)
	}
	return &machine{a, tpm, &Verifier{EndorsementRoots: s.Roots}, attest.Expected{
		ReportData: bytes.Repeat([]byte("n"), 48), // as the key broker protocol's: more than a TPM takes
		InitData:   bytes.Repeat([]byte("i"), 48),
		Credential: bytes.Repeat([]byte("c"), 32),
	}}
}

// boot measures, proves whose the TPM is, and returns evidence.
func (m *machine) boot(t testing.TB) *attest.TPMEvidence {
	t.Helper()
	ctx := context.Background()
	if err := m.BindInitData(ctx, m.want.InitData); err != nil {
		t.Fatal(err)
	}
	event, err := eventlog.PullImage("quay.io/app:1", "sha256:"+strings.Repeat("0", 64))
	if err == nil {
		err = m.Extend(ctx, event)
	}
	if err != nil {
		t.Fatal(err)
	}
	credential, err := m.verifier.NewCredential(*m.identity(t), m.want.Credential)
	if err == nil {
		err = m.Activate(ctx, credential)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.evidence(t)
}

func (m *machine) identity(t testing.TB) *attest.TPMIdentity {
	t.Helper()
	identity, err := m.Identity(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func (m *machine) evidence(t testing.TB) *attest.TPMEvidence {
	t.Helper()
	data, err := m.Evidence(context.Background(), m.want.ReportData)
	e := &attest.TPMEvidence{}
	if err == nil {
		err = json.Unmarshal(data, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (m *machine) verify(t testing.TB, e *attest.TPMEvidence) (attest.Claims, error) {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return m.verifier.Verify(context.Background(), attest.TPM, data, m.want)
}

func wantError(t testing.TB, name string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want %q", name, err, want)
	}
	if err != nil && len(err.Error()) > 2*maxError {
		t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
	}
}

func TestEvidenceOfATPM(t *testing.T) {
	m := newMachine(t, swtpm.Start(t))
	e := m.boot(t)
	claims, err := m.verify(t, e)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"ak_certified": true,
		"ak_public":    base64.StdEncoding.EncodeToString(e.AKPublic),
		"report_data":  strings.Repeat("6e", 32),
		"pcr08":        claims["init_data"],
		"pcr00":        strings.Repeat("0", 64),
		"pcr17":        strings.Repeat("f", 64),
	} {
		if claims[name] != want {
			t.Errorf("claim %s is %v, want %v", name, claims[name], want)
		}
	}
	if events, _ := claims["events"].([]eventlog.Event); len(events) != 1 || events[0].Content != `{"digest":"sha256:`+strings.Repeat("0", 64)+`","image":"quay.io/app:1"}` {
		t.Errorf("events are %v", claims["events"])
	}
	// As other attesters make it: without what is ours.
	m.want.Credential = nil
	claims, err = m.verify(t, &attest.TPMEvidence{AKPublic: e.AKPublic, Quote: e.Quote})
	if err != nil || claims["ak_certified"] != false || claims["events"] != nil {
		t.Errorf("evidence of Trustee's form: %v, %v", claims, err)
	}
}

func TestEvidenceOfATPMIsRefused(t *testing.T) {
	m, other := newMachine(t, swtpm.Start(t)), newMachine(t, swtpm.Start(t))
	good, others := m.boot(t), other.boot(t)
	for _, c := range []struct {
		name   string
		change func(e *attest.TPMEvidence, want *attest.Expected)
		err    string
	}{
		{"forged signature", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.Signature = flipped(e.Quote.Signature, -1) }, "forged"},
		{"changed message", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.Message = flipped(e.Quote.Message, 50) }, "forged"},
		{"other key in DER", func(e *attest.TPMEvidence, _ *attest.Expected) { e.AKPublic = others.AKPublic }, "forged"},
		{"other key in the TPM's form", func(e *attest.TPMEvidence, _ *attest.Expected) { e.AttestationKey = others.AttestationKey }, "another than the one in DER"},
		{"no key in the TPM's form", func(e *attest.TPMEvidence, _ *attest.Expected) { e.AttestationKey = nil }, "not a TPM2B_PUBLIC"},
		{"more than a key", func(e *attest.TPMEvidence, _ *attest.Expected) { e.AttestationKey = append(e.AttestationKey, 0) }, "not a TPM2B_PUBLIC"},
		{"replayed", func(_ *attest.TPMEvidence, w *attest.Expected) { w.ReportData = []byte("fresh") }, "it is old"},
		{"no nonce", func(_ *attest.TPMEvidence, w *attest.Expected) { w.ReportData = nil }, "without report data"},
		{"another register's value", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.PCRs[4] = strings.Repeat("1", 64) }, "they were changed"},
		{"a register less", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.PCRs = e.Quote.PCRs[1:] }, "23 registers"},
		{"a register of SHA-1", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.PCRs[4] = strings.Repeat("0", 40) }, "PCR 4 is not 32 bytes"},
		{"another initdata", func(_ *attest.TPMEvidence, w *attest.Expected) { w.InitData = []byte("another") }, "another initdata"},
		{"wrong credential", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Credential = flipped(e.Credential, 0) }, "does not have the credential"},
		{"no credential", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Credential = nil }, "does not have the credential"},
		{"another's credential", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Credential = others.Credential }, "does not have the credential"},
		{"the secret itself", func(e *attest.TPMEvidence, w *attest.Expected) { e.Credential = w.Credential }, "does not have the credential"},
		{"an empty secret, which anybody knows", func(e *attest.TPMEvidence, w *attest.Expected) {
			name, _, _ := parseAttestationKey(e.AttestationKey)
			e.Credential, w.Credential = attest.CredentialFor(nil, name), []byte{}
		}, "0 bytes, want 16"},
		{"a changed event", func(e *attest.TPMEvidence, _ *attest.Expected) {
			e.RuntimeLog = strings.Replace(e.RuntimeLog, "app:1", "app:2", 1)
		}, "runtime log does not lead"},
		{"an event less", func(e *attest.TPMEvidence, _ *attest.Expected) {
			e.RuntimeLog = eventlog.New([32]byte{})
		}, "runtime log does not lead"},
		{"a log that hides events", func(e *attest.TPMEvidence, _ *attest.Expected) {
			log, _ := eventlog.Parse(e.RuntimeLog)
			e.RuntimeLog = eventlog.New(log.Replay(1))
		}, "may hide events"},
		{"no log", func(e *attest.TPMEvidence, _ *attest.Expected) { e.RuntimeLog = "\x00" }, "does not end with a line feed"},
		{"a boot log of another machine", func(e *attest.TPMEvidence, _ *attest.Expected) { e.BootLog = logs.Ubuntu2404AmdSevSnpEventLog }, "boot log does not lead"},
		{"a boot log of nothing", func(e *attest.TPMEvidence, _ *attest.Expected) { e.BootLog = []byte("hello") }, "not a TCG event log"},
		{"a huge boot log", func(e *attest.TPMEvidence, _ *attest.Expected) { e.BootLog = make([]byte, attest.MaxBootLog+1) }, "bound"},
		{"huge", func(e *attest.TPMEvidence, _ *attest.Expected) { e.BootLog = make([]byte, attest.MaxEvidence) }, "bound"},
		{"no signature", func(e *attest.TPMEvidence, _ *attest.Expected) { e.Quote.Signature = e.Quote.Signature[:3] }, "not a TPMT_SIGNATURE"},
		{"no key", func(e *attest.TPMEvidence, _ *attest.Expected) { e.AKPublic = nil }, "not an RSA key"},
	} {
		e, want := *good, m.want
		e.Quote.PCRs = append([]string(nil), good.Quote.PCRs...)
		e.AttestationKey = append([]byte(nil), good.AttestationKey...)
		c.change(&e, &want)
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := m.verifier.Verify(context.Background(), attest.TPM, data, want)
		wantError(t, c.name, err, c.err)
		if claims != nil {
			t.Errorf("%s: there are claims beside the error", c.name)
		}
	}
	_, err := m.verifier.Verify(context.Background(), attest.TPM, []byte(`{"ak_public":`), m.want)
	wantError(t, "truncated", err, "form of Trustee's")
	_, err = m.verifier.Verify(context.Background(), "cca", []byte(`{}`), m.want)
	wantError(t, "unknown TEE", err, `"cca"`)
}

func flipped(data []byte, at int) []byte {
	data = append([]byte(nil), data...)
	data[(at+len(data))%len(data)] ^= 1
	return data
}

// sign returns evidence with a message that somebody else's key signed.
func sign(t *testing.T, e attest.TPMEvidence, message []byte, key *rsa.PrivateKey) *attest.TPMEvidence {
	t.Helper()
	digest := sha256.Sum256(message)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	if e.AKPublic, err = x509.MarshalPKIXPublicKey(&key.PublicKey); err != nil {
		t.Fatal(err)
	}
	e.Quote.Message = message
	e.Quote.Signature = tpm2.Marshal(tpm2.TPMTSignature{SigAlg: tpm2.TPMAlgRSASSA, Signature: tpm2.NewTPMUSignature(tpm2.TPMAlgRSASSA,
		&tpm2.TPMSSignatureRSA{Hash: tpm2.TPMAlgSHA256, Sig: tpm2.TPM2BPublicKeyRSA{Buffer: signature}})})
	return &e
}

// Who has a TPM and activated a credential for its key cannot use that for a key outside of it.
func TestCredentialIsOfOneKey(t *testing.T) {
	m := newMachine(t, swtpm.Start(t))
	e := m.boot(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	forged := sign(t, *e, e.Quote.Message, key)
	_, err = m.verify(t, forged)
	wantError(t, "the TPM's key beside another", err, "another than the one in DER")
	public, err := parsePublic(e.AttestationKey)
	if err != nil {
		t.Fatal(err)
	}
	public.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: key.N.Bytes()})
	forged.AttestationKey = tpm2.Marshal(tpm2.New2B(*public))
	_, err = m.verify(t, forged)
	wantError(t, "a key that says it is a TPM's", err, "does not have the credential")
	m.want.Credential = nil
	if claims, err := m.verify(t, forged); err != nil || claims["ak_certified"] != false {
		t.Errorf("without a credential, where a policy has to know ak_public: %v", err)
	}
	quoted, err := tpm2.Unmarshal[tpm2.TPMSAttest](e.Quote.Message)
	if err != nil {
		t.Fatal(err)
	}
	quoted.Magic = 0x12345678
	_, err = m.verify(t, sign(t, *e, tpm2.Marshal(quoted), key))
	wantError(t, "not made by a TPM", err, "not a quote that a TPM made")
	_, err = m.verify(t, sign(t, *e, e.Quote.Message[:40], key))
	wantError(t, "truncated message", err, "not a TPMS_ATTEST")
}

// template is of an attestation key as the attester's, restricted or not.
func template(restricted bool) tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type: tpm2.TPMAlgRSA, NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, SensitiveDataOrigin: true, UserWithAuth: true, SignEncrypt: true, Restricted: restricted},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{KeyBits: 2048, Scheme: tpm2.TPMTRSAScheme{
			Scheme: tpm2.TPMAlgRSASSA, Details: tpm2.NewTPMUAsymScheme(tpm2.TPMAlgRSASSA, &tpm2.TPMSSigSchemeRSASSA{HashAlg: tpm2.TPMAlgSHA256})}}),
	}
}

// A TPM signs quotes of less, with keys that sign other things too, and attests to other things than registers.
func TestQuotesOfOtherKinds(t *testing.T) {
	m := newMachine(t, swtpm.StartBlank(t))
	for _, c := range []struct {
		name       string
		restricted bool
		bank       tpm2.TPMAlgID
		selected   []byte
		err        string
	}{
		{"as it should be", true, tpm2.TPMAlgSHA256, []byte{0xff, 0xff, 0xff}, ""},
		{"key not restricted", false, tpm2.TPMAlgSHA256, []byte{0xff, 0xff, 0xff}, "not a restricted signing key"},
		{"fewer registers", true, tpm2.TPMAlgSHA256, []byte{0xff, 0xfe, 0xff}, "not of the 24 registers"},
		{"other bank", true, tpm2.TPMAlgSHA1, []byte{0xff, 0xff, 0xff}, "not of the 24 registers"},
		{"no quote", true, 0, nil, "not a quote"},
	} {
		e := m.evidence(t)
		m.want.Credential, m.want.InitData = nil, nil
		key, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHEndorsement, InPublic: tpm2.New2B(template(c.restricted))}.Execute(m.tpm)
		if err != nil {
			t.Fatal(err)
		}
		signer := tpm2.AuthHandle{Handle: key.ObjectHandle, Name: key.Name, Auth: tpm2.PasswordAuth(nil)}
		nonce := tpm2.TPM2BData{Buffer: attest.FixedSize(m.want.ReportData, 32)}
		var message []byte
		var signature tpm2.TPMTSignature
		if c.bank == 0 {
			r, err := tpm2.GetTime{PrivacyAdminHandle: tpm2.TPMRHEndorsement, SignHandle: signer, QualifyingData: nonce, InScheme: tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull}}.Execute(m.tpm)
			if err != nil {
				t.Fatal(err)
			}
			message, signature = r.TimeInfo.Bytes(), r.Signature
		} else {
			r, err := tpm2.Quote{SignHandle: signer, QualifyingData: nonce, InScheme: tpm2.TPMTSigScheme{Scheme: tpm2.TPMAlgNull},
				PCRSelect: tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{Hash: c.bank, PCRSelect: c.selected}}}}.Execute(m.tpm)
			if err != nil {
				t.Fatal(err)
			}
			message, signature = r.Quoted.Bytes(), r.Signature
		}
		public, err := parsePublic(tpm2.Marshal(key.OutPublic))
		if err != nil {
			t.Fatal(err)
		}
		rsaPublic, err := rsaKey(public)
		if err == nil {
			e.AKPublic, err = x509.MarshalPKIXPublicKey(rsaPublic)
		}
		if err != nil {
			t.Fatal(err)
		}
		e.AttestationKey, e.Quote.Message, e.Quote.Signature = tpm2.Marshal(key.OutPublic), message, tpm2.Marshal(signature)
		_, err = m.verify(t, e)
		if c.err == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if c.err != "" {
			wantError(t, c.name, err, c.err)
		}
		if _, err := (tpm2.FlushContext{FlushHandle: key.ObjectHandle}).Execute(m.tpm); err != nil {
			t.Fatal(err)
		}
	}
}

// The log of a real machine's firmware is replayed in the registers of a TPM.
func TestBootLog(t *testing.T) {
	m := newMachine(t, swtpm.StartBlank(t))
	m.want.Credential, m.want.InitData = nil, nil
	log := logs.Ubuntu2404AmdSevSnpEventLog
	parsed, err := tcg.ParseEventLog(log, tcg.ParseOpts{})
	if err != nil {
		t.Fatal(err)
	}
	events := parsed.Events(register.HashSHA256)
	measured := 0
	for _, e := range events {
		if e.Type == 3 { // EV_NO_ACTION
			continue
		}
		if _, err := (tpm2.PCRExtend{PCRHandle: tpm2.AuthHandle{Handle: tpm2.TPMHandle(e.Index), Auth: tpm2.PasswordAuth(nil)},
			Digests: tpm2.TPMLDigestValues{Digests: []tpm2.TPMTHA{{HashAlg: tpm2.TPMAlgSHA256, Digest: e.Digest}}}}).Execute(m.tpm); err != nil {
			t.Fatal(err)
		}
		if e.Index != 8 {
			measured++
		}
	}
	e := m.evidence(t)
	e.BootLog = log
	claims, err := m.verify(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if got := claims["boot_events"].([]BootEvent); len(got) != measured || got[0].Digest == "" || got[0].Type == "" {
		t.Errorf("%d events, want %d: %v", len(got), measured, got[:min(3, len(got))])
	}
	e.BootLog = flipped(log, bytes.LastIndex(log, events[len(events)-1].Digest))
	_, err = m.verify(t, e)
	wantError(t, "a changed digest", err, "boot log does not lead")
	e.BootLog = log[:bytes.Index(log, events[1].Digest)-12-24] // the header and perhaps an event
	_, err = m.verify(t, e)
	wantError(t, "a log cut off", err, "boot log")
}

func TestNewCredentialRefuses(t *testing.T) {
	m, other := newMachine(t, swtpm.Start(t)), newMachine(t, swtpm.Start(t))
	good, others := m.identity(t), other.identity(t)
	secret := m.want.Credential
	unrestricted := tpm2.Marshal(tpm2.New2B(func() tpm2.TPMTPublic {
		p, _ := parsePublic(good.AttestationKey)
		p.ObjectAttributes.Restricted = false
		return *p
	}()))
	for _, c := range []struct {
		name   string
		change func(v *Verifier, i *attest.TPMIdentity)
		err    string
	}{
		{"no certificate", func(_ *Verifier, i *attest.TPMIdentity) { i.Certificate = nil }, "reference value"},
		{"another's certificate", func(v *Verifier, i *attest.TPMIdentity) {
			v.EndorsementRoots, i.Certificate = other.verifier.EndorsementRoots, others.Certificate
		}, "of another key"},
		{"another maker", func(v *Verifier, _ *attest.TPMIdentity) { v.EndorsementRoots = other.verifier.EndorsementRoots }, "unknown authority"},
		{"no maker", func(v *Verifier, _ *attest.TPMIdentity) { v.EndorsementRoots = nil }, "no root certificates"},
		{"not valid now", func(v *Verifier, _ *attest.TPMIdentity) {
			v.Now = func() time.Time { return time.Now().AddDate(-10, 0, 0) }
		}, "not yet valid"},
		{"not restricted", func(_ *Verifier, i *attest.TPMIdentity) { i.AttestationKey = unrestricted }, "not a restricted signing key"},
		{"an endorsement key that signs", func(_ *Verifier, i *attest.TPMIdentity) { i.EndorsementKey = i.AttestationKey }, "not a restricted key for decryption"},
		{"an attestation key that decrypts", func(_ *Verifier, i *attest.TPMIdentity) { i.AttestationKey = i.EndorsementKey }, "not a restricted signing key"},
		{"no key", func(_ *Verifier, i *attest.TPMIdentity) { i.EndorsementKey = []byte{0, 0} }, "endorsement key is not"},
		{"no DER", func(_ *Verifier, i *attest.TPMIdentity) { i.Certificate = []byte("x") }, "not one of X.509"},
	} {
		v, identity := *m.verifier, *good
		c.change(&v, &identity)
		_, err := v.NewCredential(identity, secret)
		wantError(t, c.name, err, c.err)
	}
	_, err := m.verifier.NewCredential(*good, secret[:8])
	wantError(t, "short secret", err, "8 bytes")
	credential, err := m.verifier.NewCredential(*good, secret)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "another TPM", other.Activate(context.Background(), credential), "for another TPM or key")
	credential.Blob = flipped(credential.Blob, -1)
	wantError(t, "changed", m.Activate(context.Background(), credential), "for another TPM or key")
}
