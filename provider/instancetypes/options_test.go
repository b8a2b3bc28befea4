// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
)

var zoned = []provider.InstanceType{
	{Name: "m.small", VCPUs: 2, Memory: 4096, Arch: "amd64", Zones: []string{"a", "b"}, Price: 2},
	{Name: "m.large", VCPUs: 8, Memory: 16384, Arch: "amd64", Zones: []string{"a"}, Price: 4},
	{Name: "c.large", VCPUs: 8, Memory: 8192, Arch: "amd64", Zones: []string{"b", "c"}, Price: 3},
	{Name: "x", VCPUs: 8, Memory: 16384, Arch: "amd64", Price: 5}, // everywhere
}

func TestOptionsSelect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		allow  Patterns
		zones  []string
		spec   provider.InstanceTypeSpec
		want   string
		errors []string
	}{
		{"no list allows the default", nil, nil, provider.InstanceTypeSpec{}, "m.small", nil},
		{"no list allows the default by name", nil, nil, provider.InstanceTypeSpec{InstanceType: "m.small"}, "m.small", nil},
		{"no list, a size that the default has", nil, nil, provider.InstanceTypeSpec{VCPUs: 1}, "m.small", nil},
		{"no list, a size that the default has not", nil, nil, provider.InstanceTypeSpec{VCPUs: 8}, "", []string{
			"nearest of 4: m.small (2 vCPUs, 4096 MiB, amd64; too few vCPUs), c.large (8 vCPUs, 8192 MiB, amd64; not allowed), m.large ("}},
		{"no list, another name", nil, nil, provider.InstanceTypeSpec{InstanceType: "x"}, "", []string{
			`"x" is not allowed; allowed: the default "m.small"`, "nearest of 1: m.small ("}},
		{"the default is allowed besides a list", Patterns{"x"}, nil, provider.InstanceTypeSpec{VCPUs: 1}, "m.small", nil},
		{"a list of names", Patterns{"x"}, nil, provider.InstanceTypeSpec{VCPUs: 8}, "x", nil},
		{"a list of patterns", Patterns{"m.*"}, nil, provider.InstanceTypeSpec{VCPUs: 8}, "m.large", nil},
		{"all", Patterns{"*"}, nil, provider.InstanceTypeSpec{VCPUs: 8}, "c.large", nil},
		{"a name that the list has not", Patterns{"m.*"}, nil, provider.InstanceTypeSpec{InstanceType: "x"}, "", []string{
			`allowed: the default "m.small", m.*`, "nearest of 2: m.large (8 vCPUs, 16384 MiB, amd64)"}},
		{"a zone", Patterns{"*"}, []string{"a"}, provider.InstanceTypeSpec{VCPUs: 8}, "m.large", nil},
		{"one of two zones", Patterns{"*"}, []string{"z", "c"}, provider.InstanceTypeSpec{VCPUs: 8}, "c.large", nil},
		{"a type without zones is in all", Patterns{"*"}, []string{"z"}, provider.InstanceTypeSpec{VCPUs: 8}, "x", nil},
		{"a type by name in another zone", Patterns{"*"}, []string{"a"}, provider.InstanceTypeSpec{InstanceType: "c.large"}, "", []string{
			`"c.large" cannot be used for zone a`, "only in zone b, c"}},
		{"the default in another zone", Patterns{"*"}, []string{"c"}, provider.InstanceTypeSpec{}, "", []string{
			`default instance type "m.small" cannot be used for zone c`, "only in zone a, b", "choose another default"}},
		{"a pattern that does not parse", Patterns{"m[", "x"}, nil, provider.InstanceTypeSpec{}, "", []string{`pattern "m["`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Options{Types: zoned, Default: "m.small", Allow: tc.allow, Zones: tc.zones}.Select(tc.spec)
			if tc.errors == nil {
				if err != nil || got.Name != tc.want {
					t.Errorf("got %q, %v, want %q", got.Name, err, tc.want)
				}
				return
			}
			if !errors.Is(err, provider.ErrInvalidArgument) {
				t.Fatalf("got %q, %v, want ErrInvalidArgument", got.Name, err)
			}
			for _, want := range tc.errors {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestSelectNamedRowsOfOneName(t *testing.T) {
	rows := []provider.InstanceType{
		{Name: "n", VCPUs: 1, Arch: "amd64", Zones: []string{"a"}},
		{Name: "n", VCPUs: 2, Arch: "arm64", Zones: []string{"a"}},
		{Name: "n", VCPUs: 3, Arch: "arm64", Zones: []string{"b"}},
	}
	o := Options{Types: rows, Default: "n", Zones: []string{"b"}}
	for _, spec := range []provider.InstanceTypeSpec{{InstanceType: "n", Arch: "arm64"}, {Arch: "arm64"}} {
		if got, err := o.Select(spec); err != nil || got.VCPUs != 3 {
			t.Errorf("%+v: got %+v, %v, want the row of the zone and architecture", spec, got, err)
		}
	}
}

func TestSelectWithoutCatalogueAllowsTheList(t *testing.T) {
	o := Options{Default: "def", Allow: Patterns{"n*"}}
	if got, err := o.Select(provider.InstanceTypeSpec{InstanceType: "n1"}); err != nil || got.Name != "n1" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := (Options{}).Select(provider.InstanceTypeSpec{InstanceType: "n1"}); err == nil || !strings.HasSuffix(err.Error(), "allowed: none") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestNonsenseInTheCatalogue: some clouds fill what they do not know with -1.
func TestNonsenseInTheCatalogue(t *testing.T) {
	rows := []provider.InstanceType{{Name: "n", VCPUs: -1, Memory: -1, GPUs: -1, Price: -1}}
	if got, err := Select(provider.InstanceTypeSpec{Arch: "amd64"}, rows, ""); got != "n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Select(provider.InstanceTypeSpec{VCPUs: math.MaxInt64}, rows, ""); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRank(t *testing.T) {
	o := Options{Types: zoned, Default: "m.small", Allow: Patterns{"*"}}
	for _, tc := range []struct {
		spec provider.InstanceTypeSpec
		want []string
	}{
		{provider.InstanceTypeSpec{VCPUs: 8}, []string{"c.large", "m.large", "x"}},
		{provider.InstanceTypeSpec{InstanceType: "x"}, []string{"x"}},
		{provider.InstanceTypeSpec{}, []string{"m.small"}},
	} {
		ranked, err := o.Rank(tc.spec)
		var names []string
		for _, r := range ranked {
			names = append(names, r.Name)
		}
		if diff := cmp.Diff(tc.want, names); diff != "" || err != nil {
			t.Errorf("%+v: %v %s", tc.spec, err, diff)
		}
	}
}

func TestSelectLeavesItsArgumentsAlone(t *testing.T) {
	o := Options{Types: append([]provider.InstanceType(nil), zoned...), Default: "m.small", Allow: append(make(Patterns, 0, 8), "m.*"), Zones: []string{"b"}}
	before := Options{append([]provider.InstanceType(nil), zoned...), "m.small", Patterns{"m.*"}, []string{"b"}}
	for _, spec := range []provider.InstanceTypeSpec{{VCPUs: 1}, {VCPUs: 99}, {}, {InstanceType: "x"}, {InstanceType: "y"}} {
		o.Select(spec) //nolint:errcheck // only what it leaves behind counts
	}
	if diff := cmp.Diff(before, o); diff != "" {
		t.Error(diff)
	}
}

func TestPatternsText(t *testing.T) {
	var p Patterns
	if err := p.UnmarshalText([]byte(" m6a.*, c?.large ,, x")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Patterns{"m6a.*", "c?.large", "x"}, p); diff != "" {
		t.Error(diff)
	}
	if err := p.UnmarshalText([]byte("ok,bad[")); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), `"bad["`) {
		t.Errorf("error %v does not name the pattern", err)
	}
	if name := (Patterns{"n[1]"}); !name.match("n[1]") || !name.match("n1") {
		t.Error("a name with brackets is not that name")
	}
	if len(p) != 3 {
		t.Errorf("a text that does not parse has changed the patterns: %v", p)
	}
}

func FuzzPatterns(f *testing.F) {
	for _, seed := range []string{"", "a,b", "m6a.*", "[", `\`, "[a-", " ,", "[^a]?*"} {
		f.Add(seed, "m6a.large")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		var first, second Patterns
		if first.UnmarshalText([]byte(text)) != nil {
			return
		}
		again, _ := first.MarshalText()
		if err := second.UnmarshalText(again); err != nil || !cmp.Equal(first, second) {
			t.Fatalf("%q gives %q and then %q, %v", text, first, second, err)
		}
		o := Options{Types: []provider.InstanceType{{Name: name}}, Allow: first}
		got, err := o.Select(provider.InstanceTypeSpec{InstanceType: name, VCPUs: 1})
		if allowed := name != "" && first.match(name); name != "" && allowed != (err == nil) {
			t.Fatalf("%q allows %q: %v, but Select answered %+v, %v", text, name, allowed, got, err)
		}
	})
}
