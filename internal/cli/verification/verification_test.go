// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

var nonce = bytes.Repeat([]byte{7}, nonceSize)

// sample is what a VM with the sample attester answers to a nonce.
func sample(t *testing.T, nonce []byte) *attest.Answer {
	t.Helper()
	data, err := attest.ForVerifier(nonce)
	if err != nil {
		t.Fatal(err)
	}
	evidence, err := json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: data})
	if err != nil {
		t.Fatal(err)
	}
	return &attest.Answer{TEE: attest.Sample, Evidence: evidence, Broker: "https://broker", Error: "red\x1b[31m"}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestVerify: what is expected is compared, and what is not known is said.
func TestVerify(t *testing.T) {
	annotation, err := cloudinit.EmptyInitData().Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := sample(t, nonce)
	for name, c := range map[string]struct {
		opts       Options
		answer     *attest.Answer
		annotation string
		want       string
	}{
		"not allowed":         {Options{}, good, "", "✗ NOT VERIFIED: evidence of sample: sample evidence proves nothing"},
		"allowed":             {Options{AllowSample: true}, good, "", "? not proven: anything"},
		"of another question": {Options{AllowSample: true}, sample(t, bytes.Repeat([]byte{8}, nonceSize)), "", "✗ NOT VERIFIED"},
		"no references":       {Options{AllowSample: true}, good, "", "? not proven: which image was booted"},
		"references":          {Options{AllowSample: true, References: file(t, `{"svn": ["1", "2"]}`)}, good, "", "✓ as the reference values have it: svn"},
		"another image":       {Options{AllowSample: true, References: file(t, `{"svn": ["2"]}`)}, good, "", "✗ NOT VERIFIED: svn is 1, which is none of its 1 reference values"},
		"of another TEE":      {Options{AllowSample: true, References: file(t, `{"tpm_pcr04": ["00"]}`)}, good, "", "✗ NOT VERIFIED: none of the reference values is of evidence of sample"},
		"no such claim":       {Options{AllowSample: true, References: file(t, `{"pcr04": ["00"]}`)}, good, "", `has no claim "pcr04"`},
		"a broker's words":    {Options{AllowSample: true}, good, annotation, "key broker https://broker: the VM says, it gives nothing: red [31m"},
		"unknown TEE":         {Options{}, &attest.Answer{TEE: "x\n"}, "", "✗ NOT VERIFIED: no verifier for evidence"},
	} {
		report, err := c.opts.Verify(context.Background(), "shop/web", c.answer, nonce, c.annotation)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out bytes.Buffer
		if report.Print(&out); !strings.Contains(out.String(), c.want) || strings.ContainsRune(out.String(), '\x1b') {
			t.Errorf("%s: %s; want %s", name, &out, c.want)
		}
		if strings.Contains(c.want, "NOT VERIFIED") != (report.Failed != "") && !strings.Contains(c.want, "no claim") {
			t.Errorf("%s: failed %q", name, report.Failed)
		}
	}
}

// TestFilesOfTheUser: what is wrong with them is an error that names the flag.
func TestFilesOfTheUser(t *testing.T) {
	for _, c := range []struct {
		opts Options
		want string
	}{
		{Options{InitData: "/nowhere"}, "--initdata"},
		{Options{InitData: file(t, "algorithm = 'md5'")}, "initdata"},
		{Options{InitData: file(t, strings.Repeat("x", maxFile+1))}, "2 MiB"},
		{Options{References: "/nowhere"}, "--reference-values"},
		{Options{References: file(t, "[]")}, "JSON of the form"},
		{Options{References: file(t, "{}")}, "no reference value"},
	} {
		if _, err := c.opts.Verify(context.Background(), "web", sample(t, nonce), nonce, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.opts, err)
		}
	}
}
