// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// References are what claims must be: values by names. A name is that of a claim, or it behind the TEE that has it, as in tpm_pcr04; or one
// of trusteeNames. Those of other TEEs do not count.
type References map[string][]string

// ParseReferences reads {"NAME": ["VALUE", ...], ...}, which Trustee's sample extractor takes.
func ParseReferences(data []byte) (References, error) {
	var r References
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, errors.New(`want JSON of the form {"NAME": ["VALUE", ...], ...}`)
	}
	if len(r) == 0 {
		return nil, errors.New("there is no reference value")
	}
	for name, values := range r {
		if len(values) == 0 {
			return nil, fmt.Errorf("%.64q has no value", name)
		}
	}
	return r, nil
}

// tees are those that names of references may begin with.
var tees = []TEE{Sample, TPM, SNP, TDX}

// trusteeNames are those of Trustee's documents and default policy (attestation-service, ear_default_policy_cpu.rego) that are not made of
// their claim's: the claim of each, with dots where it is within others.
var trusteeNames = map[string]struct {
	tee   TEE
	claim string
}{
	"trusted_ak":             {TPM, "ak_public"},
	"snp_launch_measurement": {SNP, "measurement"},
	"mr_seam":                {TDX, "quote.body.mr_seam"},
	"mr_td":                  {TDX, "quote.body.mr_td"},
	"rtmr_1":                 {TDX, "quote.body.rtmr_1"},
	"rtmr_2":                 {TDX, "quote.body.rtmr_2"},
}

// claim returns the claim that a name is about, if it is one of this TEE.
func claim(tee TEE, name string) (string, bool) {
	if known, is := trusteeNames[name]; is {
		return known.claim, tee == known.tee
	}
	for _, other := range tees {
		if of, is := strings.CutPrefix(name, string(other)+"_"); is {
			return of, other == tee
		}
	}
	return name, true
}

// Appraise compares claims of a TEE with what they must be, and returns the names that agree: none if there is no reference value for
// this TEE. An error says which one does not.
func (r References) Appraise(tee TEE, claims Claims) (agree []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		of, is := claim(tee, name)
		if !is {
			continue
		}
		value, has := claims.at(of)
		if !has {
			return nil, fmt.Errorf("the evidence of %s has no claim %q, of which there is a reference value", tee, of)
		}
		if !slices.Contains(r[name], fmt.Sprint(value)) {
			return nil, fmt.Errorf("%s is %.128s, which is none of its %d reference values: another image was booted, or other firmware", name, fmt.Sprint(value), len(r[name]))
		}
		agree = append(agree, name)
	}
	return agree, nil
}

// at returns the claim at a path.
func (c Claims) at(path string) (value any, has bool) {
	value = c
	for name := range strings.SplitSeq(path, ".") {
		within, is := value.(Claims)
		if value, has = within[name]; !is || !has {
			return nil, false
		}
	}
	return value, true
}
