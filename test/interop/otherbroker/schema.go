// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// schema is an object of kbs.yaml: by names like "init-data.body" what begins
// each JSON value of that type, '{' or '"', with '?' behind it if not required.
type schema map[string]string

var request = schema{"version": `"`, "tee": `"`, "extra-params": `{?`}

// attestation has RuntimeData from the text: kbs.yaml refers to it and lacks it.
var attestation = schema{
	"init-data": `{?`, "init-data.format": `"`, "init-data.body": `"`,
	"runtime-data": `{`, "runtime-data.nonce": `"`, "runtime-data.tee-pubkey": `{`,
	"tee-evidence": `{`, "tee-evidence.primary_evidence": `{`, "tee-evidence.additional_evidence": `"`,
}

var teePubKey = map[string]schema{
	"RSA": {"kty": `"`, "alg": `"`, "n": `"`, "e": `"`},
	"EC":  {"kty": `"`, "crv": `"`, "alg": `"`, "x": `"`, "y": `"`},
}

var enums = map[string][]string{
	"tee": {"az-snp-vtpm", "az-tdx-vtpm", "nvidia", "sgx", "snp", "tdx", "cca", "csv", "se", "hygondcu", "tpm", "sample", "sampledevice"},

	"init-data.format": {"json", "toml"},
}

// check returns the members of an object and of those within, by their names in
// the schema, and records where they are not as it has them.
func (v *visit) check(raw []byte, want schema) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	return found, v.checkWithin("", raw, want, found)
}

func (v *visit) checkWithin(prefix string, raw []byte, want schema, found map[string]json.RawMessage) error {
	members, err := fields(raw)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		name, value := prefix+name, members[name]
		kind, known := want[name]
		if !known {
			v.note("note: %.40q is not in the schema, which permits others", name)
			continue
		}
		found[name] = value
		switch enum := enums[name]; {
		case value[0] != kind[0]:
			v.note("deviation: %s does not begin with %q", name, kind[0])
		case enum != nil && !slices.Contains(enum, text(value)):
			v.note("deviation: %s is %.40q, not one of %v", name, text(value), enum)
		case len(want.within(name+".")) > 0:
			if err := v.checkWithin(name+".", value, want, found); err != nil {
				return err
			}
		}
	}
	for _, name := range want.within(prefix) {
		if found[name] == nil && !strings.HasSuffix(want[name], "?") {
			v.note("deviation: %s is missing", name)
		}
	}
	return nil
}

// within returns the names of an object's own members, in order.
func (s schema) within(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if own, below := strings.CutPrefix(name, prefix); below && !strings.Contains(own, ".") {
			names = append(names, name)
		}
	}
	return names
}

// fields returns the members of a JSON object as they were sent. Unlike with a
// struct, the case of names counts.
func fields(raw []byte) (members map[string]json.RawMessage, err error) {
	err = json.Unmarshal(raw, &members)
	return members, err
}

// text returns the string that raw is, or "".
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
