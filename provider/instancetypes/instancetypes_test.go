// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// types is in no order, as some clouds list theirs, and not monotone: more
// vCPUs with less memory, and a price that follows neither.
var types = []provider.InstanceType{
	{Name: "large", VCPUs: 8, Memory: 32768, Arch: "amd64"},
	{Name: "small", VCPUs: 2, Memory: 4096, Arch: "amd64"},
	{Name: "gpu4", VCPUs: 8, Memory: 65536, GPUs: 4, GPU: "l4", Arch: "amd64"},
	{Name: "compute", VCPUs: 8, Memory: 16384, Arch: "amd64"},
	{Name: "gpu1", VCPUs: 4, Memory: 16384, GPUs: 1, GPU: "l4", Arch: "amd64"},
	{Name: "memory", VCPUs: 2, Memory: 16384, Arch: "amd64"},
	{Name: "arm", VCPUs: 1, Memory: 2048, Arch: "arm64"},
	{Name: "arm-gpu", VCPUs: 4, Memory: 8192, GPUs: 1, Arch: "arm64"},
}

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec provider.InstanceTypeSpec
		want string
	}{
		{"nothing asked", provider.InstanceTypeSpec{}, "small"},
		{"explicit", provider.InstanceTypeSpec{InstanceType: "large"}, "large"},
		{"explicit wins over GPUs and sizes", provider.InstanceTypeSpec{InstanceType: "arm", GPUs: 4, VCPUs: 64}, "arm"},
		{"explicit GPU type", provider.InstanceTypeSpec{InstanceType: "gpu4"}, "gpu4"},
		{"GPUs", provider.InstanceTypeSpec{GPUs: 1, Arch: "amd64"}, "gpu1"},
		{"GPUs of any architecture", provider.InstanceTypeSpec{GPUs: 1}, "arm-gpu"},
		{"GPUs and sizes", provider.InstanceTypeSpec{GPUs: 1, Memory: 20000}, "gpu4"},
		{"more GPUs", provider.InstanceTypeSpec{GPUs: 2}, "gpu4"},
		{"only vCPUs", provider.InstanceTypeSpec{VCPUs: 5}, "compute"},
		{"only memory", provider.InstanceTypeSpec{Memory: 8192}, "memory"},
		{"both", provider.InstanceTypeSpec{VCPUs: 3, Memory: 16385}, "large"},
		{"exact", provider.InstanceTypeSpec{VCPUs: 2, Memory: 4096}, "small"},
		{"smallest without an architecture", provider.InstanceTypeSpec{VCPUs: 1}, "arm"},
		{"smallest of an architecture", provider.InstanceTypeSpec{VCPUs: 1, Arch: "amd64"}, "small"},
		{"architecture of the default", provider.InstanceTypeSpec{Arch: "amd64"}, "small"},
		{"other architecture than the default", provider.InstanceTypeSpec{Arch: "arm64"}, "arm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Select(tc.spec, types, "small")
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestSelectByPrice(t *testing.T) {
	priced := []provider.InstanceType{
		{Name: "new", VCPUs: 4, Memory: 8192, Price: 0.1},
		{Name: "old", VCPUs: 2, Memory: 4096, Price: 0.2},
		{Name: "same", VCPUs: 2, Memory: 8192, Price: 0.1},
	}
	if got, err := Select(provider.InstanceTypeSpec{VCPUs: 1}, priced, ""); got != "same" || err != nil {
		t.Errorf("got %q, %v, want the cheapest and of those the smallest", got, err)
	}
	priced[0].Price = 0
	if got, err := Select(provider.InstanceTypeSpec{VCPUs: 1}, priced, ""); got != "old" || err != nil {
		t.Errorf("got %q, %v, want the smallest where a price is unknown", got, err)
	}
}

func TestSelectWithoutCatalogue(t *testing.T) {
	for _, spec := range []provider.InstanceTypeSpec{{}, {InstanceType: "def"}, {VCPUs: 4, Memory: 1}} {
		if got, err := Select(spec, nil, "def"); got != "def" || err != nil {
			t.Errorf("%+v: got %q, %v", spec, got, err)
		}
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spec  provider.InstanceTypeSpec
		types []provider.InstanceType
		def   string
		want  []string
	}{
		{"unknown type", provider.InstanceTypeSpec{InstanceType: "huge"}, types, "small", []string{`"huge"`, "small (2 vCPUs, 4096 MiB, amd64)"}},
		{"too large", provider.InstanceTypeSpec{VCPUs: 9, Memory: 77}, types, "small", []string{"9 vCPUs, 77 MiB", "large (8 vCPUs"}},
		{"too many GPUs", provider.InstanceTypeSpec{GPUs: 5}, types, "small", []string{"5 GPUs"}},
		{"GPU type only", provider.InstanceTypeSpec{Memory: 60000}, types, "small", []string{"60000 MiB"}},
		{"type of another architecture", provider.InstanceTypeSpec{InstanceType: "arm", Arch: "amd64"}, types, "small", []string{"arm64", "amd64"}},
		{"no such architecture", provider.InstanceTypeSpec{Arch: "s390x"}, types, "small", []string{"s390x"}},
		{"negative", provider.InstanceTypeSpec{VCPUs: -1}, types, "small", []string{"negative", "-1 vCPUs"}},
		{"default not in the list", provider.InstanceTypeSpec{}, types, "huge", []string{"default", `"huge"`}},
		{"no default", provider.InstanceTypeSpec{}, types, "", []string{"no default"}},
		{"no list, other type", provider.InstanceTypeSpec{InstanceType: "x"}, nil, "def", []string{`"x"`, `"def"`}},
		{"no list, GPUs", provider.InstanceTypeSpec{GPUs: 1}, nil, "def", []string{"1 GPUs", "empty"}},
		{"no list, no default", provider.InstanceTypeSpec{}, nil, "", []string{"no default"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Select(tc.spec, tc.types, tc.def)
			if !errors.Is(err, provider.ErrInvalidArgument) {
				t.Fatalf("got %q, %v, want ErrInvalidArgument", got, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestSelectBoundsItsError(t *testing.T) {
	var many []provider.InstanceType
	for i := range 800 {
		many = append(many, provider.InstanceType{Name: fmt.Sprintf("type%d", i), VCPUs: 1})
	}
	_, err := Select(provider.InstanceTypeSpec{VCPUs: 2}, many, "")
	if err == nil || !strings.HasSuffix(err.Error(), "and 780 more") {
		t.Errorf("error %v", err)
	}
}

// TestSelectAgainstAllTypes compares with the definition over random requests
// and orders of the list: fit whenever one fits, and nothing smaller fits.
func TestSelectAgainstAllTypes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		spec := provider.InstanceTypeSpec{VCPUs: random.Int64N(10), Memory: 1 + random.Int64N(70000), GPUs: random.Int64N(3)}
		list := slices.Clone(types)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		got, err := Select(spec, list, "small")
		if want := slices.ContainsFunc(list, func(t provider.InstanceType) bool { return fits(spec, t) }); want != (err == nil) {
			t.Fatalf("%+v: error %v, but one fits: %v", spec, err, want)
		}
		if err != nil {
			continue
		}
		chosen := list[slices.IndexFunc(list, func(t provider.InstanceType) bool { return t.Name == got })]
		for _, other := range list {
			if fits(spec, other) && other.GPUs <= chosen.GPUs && other.VCPUs <= chosen.VCPUs && other.Memory < chosen.Memory {
				t.Fatalf("%+v: chose %s though %s is smaller", spec, got, other.Name)
			}
		}
	}
}
