// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"slices"
	"strings"
	"testing"
)

func TestIsSealed(t *testing.T) {
	for text, want := range map[string]bool{
		"sealed.a.b.c": true, "sealed.a.b.c\n": true, "sealed.md": false, "sealed.a.b": false, "x sealed.a.b.c": false, "sealed.a b.c.d": false, "": false,
	} {
		if IsSealed([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestAppraise: each reference value of this TEE has to agree, and those of others do not count.
func TestAppraise(t *testing.T) {
	claims := Claims{"pcr04": "aa", "ak_public": "key"}
	for _, c := range []struct {
		references References
		agree      []string
		wrong      string
	}{
		{nil, nil, ""},
		{References{"snp_measurement": {"x"}}, nil, ""},
		{References{"pcr04": {"bb", "aa"}, "tpm_pcr04": {"aa"}, "snp_measurement": {"x"}, "trusted_ak": {"key"}}, []string{"pcr04", "tpm_pcr04", "trusted_ak"}, ""},
		{References{"tpm_pcr04": {"bb"}}, nil, "tpm_pcr04 is aa, which is none of its 1 reference values"},
		{References{"tpm_pcr11": {"bb"}}, nil, `has no claim "pcr11"`},
		{References{"trusted_ak": {"other"}}, nil, "trusted_ak"},
	} {
		agree, err := c.references.Appraise(TPM, claims)
		if !slices.Equal(agree, c.agree) || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%v: %v, %v", c.references, agree, err)
		}
	}
	quote := Claims{"quote": Claims{"body": Claims{"mr_td": "cc"}}}
	if agree, err := (References{"mr_td": {"cc"}, "snp_launch_measurement": {"x"}}).Appraise(TDX, quote); err != nil || !slices.Equal(agree, []string{"mr_td"}) {
		t.Errorf("a claim within a quote: %v, %v", agree, err)
	}
	if agree, err := (References{"tdx_quote.header.mr_td": {"cc"}}).Appraise(TDX, quote); err == nil {
		t.Errorf("a claim that is not there: %v", agree)
	}
	for text, want := range map[string]string{"": "JSON", "[]": "JSON", "{}": "no reference value", `{"pcr04": []}`: "has no value", `{"pcr04": "aa"}`: "JSON"} {
		if _, err := ParseReferences([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
