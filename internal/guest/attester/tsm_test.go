// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-configfs-tsm/configfs/configfsi"
	"github.com/google/go-configfs-tsm/configfs/faketsm"
	snptest "github.com/google/go-sev-guest/verify/testdata"
	tdxtest "github.com/google/go-tdx-guest/testing/testdata"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/test/swtpm"
)

// named is a fake whose provider can be read before a report is asked for, as Linux's.
type named struct {
	configfsi.Client
	provider string
}

func (n named) ReadFile(path string) ([]byte, error) {
	if filepath.Base(path) == "provider" {
		return []byte(n.provider + "\n"), nil
	}
	return n.Client.ReadFile(path)
}

// kernel is configfs-tsm with reports of a provider.
func kernel(provider string, out, aux []byte) configfsi.Client {
	reports := faketsm.Report611(0)
	reports.ReadAttr = func(_ *faketsm.ReportEntry, attr string) ([]byte, error) {
		value, has := map[string][]byte{"outblob": out, "auxblob": aux}[attr]
		if !has || value == nil {
			return nil, os.ErrNotExist
		}
		return value, nil
	}
	return named{&faketsm.Client{Subsystems: map[string]configfsi.Client{"report": reports}}, provider}
}

// driverless is configfs-tsm of a kernel without a driver that makes reports, as Linux 6.12 has it in an ordinary VM.
type driverless struct{ configfsi.Client }

func (driverless) MkdirTemp(dir, _ string) (string, error) {
	return "", &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENXIO}
}

// table is the host's, with a VCEK at an offset.
func table(offset uint32, certificate []byte) []byte {
	guid, _ := hex.DecodeString("63da758de6644564adc5f4b93be8accd")
	t := binary.LittleEndian.AppendUint32(guid, offset)
	t = binary.LittleEndian.AppendUint32(t, uint32(len(certificate)))
	return append(append(t, make([]byte, tableEntry)...), certificate...)
}

func TestFind(t *testing.T) {
	snp := snptest.AttestationBytes[:attest.SNPReportSize]
	none := Options{Devices: []string{filepath.Join(t.TempDir(), "tpm0")}, Folder: t.TempDir()}
	for _, c := range []struct {
		name   string
		tsm    configfsi.Client
		sample bool
		want   attest.TEE
		err    []string
	}{
		{"SNP", kernel("sev_guest", snp, []byte{}), true, attest.SNP, nil},
		{"TDX", kernel("tdx_guest", tdxtest.RawQuote, nil), true, attest.TDX, nil},
		{"sample", kernel("arm_cca_guest", nil, nil), true, attest.Sample, nil},
		{"no driver, sample", driverless{}, true, attest.Sample, nil},
		{"no driver", driverless{}, false, "", []string{"no such device or address", "no TPM"}},
		{"nothing", kernel("arm_cca_guest", nil, nil), false, "", []string{"arm_cca_guest", "no TPM", "tpm0"}},
	} {
		o := none
		o.TSM, o.AllowSample = c.tsm, c.sample
		a, err := Find(o)
		for _, text := range c.err {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, want %q", c.name, err, text)
			}
		}
		if c.err == nil && (err != nil || a.TEE() != c.want || a.Close() != nil) {
			t.Errorf("%s: got %v, %v", c.name, a, err)
		}
	}
}

// TestTPMBesideAProcessor: its register of the initdata is not left for a container to extend with another pod's.
func TestTPMBesideAProcessor(t *testing.T) {
	ctx := context.Background()
	snp, err := findTSM(kernel("sev_guest", snptest.AttestationBytes[:attest.SNPReportSize], []byte{}))
	if err != nil {
		t.Fatal(err)
	}
	tpm := newTPM(t, swtpm.StartBlank(t), t.TempDir())
	both := withTPM{snp, tpm}
	if err := both.BindInitData(ctx, []byte("initdata")); !errors.Is(err, errors.ErrUnsupported) { // HOSTDATA is zero
		t.Error(err)
	}
	if pcr(t, tpm, attest.InitDataPCR) == zero {
		t.Error("PCR 8 is zero")
	}
	if err := both.BindInitData(ctx, []byte("another")); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another initdata: %v", err)
	}
	if both.TEE() != attest.SNP {
		t.Errorf("it attests by %s", both.TEE())
	}
}

// TestTPMThatFails: where there is one that cannot be used nothing else is taken instead: it would be left to containers.
func TestTPMThatFails(t *testing.T) {
	device := filepath.Join(t.TempDir(), "tpm0")
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, client := range []configfsi.Client{kernel("arm_cca_guest", nil, nil), kernel("sev_guest", snptest.AttestationBytes[:attest.SNPReportSize], []byte{})} {
		if a, err := Find(Options{Devices: []string{device}, Folder: t.TempDir(), TSM: client, AllowSample: true}); err == nil {
			t.Errorf("it attests by %s", a.TEE())
		}
	}
}

func TestEvidenceOfSNP(t *testing.T) {
	ctx := context.Background()
	snp := bytes.Clone(snptest.AttestationBytes[:attest.SNPReportSize])
	copy(snp[0xc0:0xe0], bytes.Repeat([]byte("d"), 32)) // HOSTDATA
	a, err := findTSM(kernel("sev_guest", snp, table(2*tableEntry, snptest.VcekBytes)))
	if err != nil {
		t.Fatal(err)
	}
	data, err := a.Evidence(ctx, []byte("nonce"))
	var e attest.SNPEvidence
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := e.Report.Bytes(); err != nil || !bytes.Equal(raw, snp) {
		t.Errorf("the report is another: %v", err)
	}
	if len(e.Certificates) != 1 || e.Certificates[0].Type != "VCEK" || !bytes.Equal(e.Certificates[0].Data, snptest.VcekBytes) {
		t.Errorf("%d certificates", len(e.Certificates))
	}
	if err := a.BindInitData(ctx, bytes.Repeat([]byte("d"), 48)); err != nil {
		t.Error(err)
	}
	if err := a.BindInitData(ctx, []byte("other")); err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("another initdata: %v", err)
	}
	if err := a.Extend(ctx, eventlog.Event{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want %v", err, errors.ErrUnsupported)
	}
}

func TestSNPRefuses(t *testing.T) {
	snp := snptest.AttestationBytes[:attest.SNPReportSize]
	for name, client := range map[string]configfsi.Client{
		"a short report":                  kernel("sev_guest", snp[1:], []byte{}),
		"a certificate outside its table": kernel("sev_guest", snp, table(1<<31, snptest.VcekBytes)),
		"no certificates attribute":       kernel("sev_guest", snp, nil),
	} {
		a, err := findTSM(client)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Evidence(context.Background(), nil); err == nil {
			t.Errorf("%s: evidence was made", name)
		}
	}
}

func TestEvidenceOfTDX(t *testing.T) {
	ctx := context.Background()
	found, err := findTSM(kernel("tdx_guest", tdxtest.RawQuote, nil))
	if err != nil {
		t.Fatal(err)
	}
	a := found.(*tsm)
	a.eventLog = filepath.Join(t.TempDir(), "none")
	data, err := a.Evidence(ctx, []byte("nonce"))
	var e attest.TDXEvidence
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil || !bytes.Equal(e.Quote, tdxtest.RawQuote) || e.EventLog != nil {
		t.Fatalf("the quote is another: %v", err)
	}
	// The machine of this quote was started without a digest.
	if err := a.BindInitData(ctx, []byte("digest")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no MRCONFIGID: %v", err)
	}
}
