// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// types is in no order, as some clouds list theirs, and not monotone: more
// vCPUs with less memory, and a price that follows neither.
var types = []provider.InstanceType{
	{Name: "large", VCPUs: 8, Memory: 32768, Arch: "amd64"},
	{Name: "small", VCPUs: 2, Memory: 4096, Arch: "amd64"},
	{Name: "gpu4", VCPUs: 8, Memory: 65536, GPUs: 4, GPU: "nvidia-l4", Arch: "amd64"},
	{Name: "compute", VCPUs: 8, Memory: 16384, Arch: "amd64"},
	{Name: "gpu1", VCPUs: 4, Memory: 16384, GPUs: 1, GPU: "nvidia-l4", Arch: "amd64"},
	{Name: "memory", VCPUs: 2, Memory: 16384, Arch: "amd64"},
	{Name: "arm", VCPUs: 1, Memory: 2048, Arch: "arm64"},
	{Name: "arm-gpu", VCPUs: 4, Memory: 8192, GPUs: 1, GPU: "nvidia-l40s", Arch: "arm64"},
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
		{"model", provider.InstanceTypeSpec{GPUs: 1, GPU: "L4"}, "gpu1"},
		{"model without a number is one GPU", provider.InstanceTypeSpec{GPU: "nvidia l4"}, "gpu1"},
		{"model and number", provider.InstanceTypeSpec{GPUs: 3, GPU: "l4"}, "gpu4"},
		{"GPUs before sizes", provider.InstanceTypeSpec{GPUs: 1, VCPUs: 8, Memory: 1024}, "gpu4"},
		{"both", provider.InstanceTypeSpec{VCPUs: 3, Memory: 16385}, "large"},
		{"exact", provider.InstanceTypeSpec{VCPUs: 2, Memory: 4096}, "small"},
		{"smallest without an architecture", provider.InstanceTypeSpec{VCPUs: 1}, "arm"},
		{"smallest of an architecture", provider.InstanceTypeSpec{VCPUs: 1, Arch: "amd64"}, "small"},
		{"architecture of the default", provider.InstanceTypeSpec{Arch: "amd64"}, "small"},
		{"default although the sizes are zero and there is a cheaper type", provider.InstanceTypeSpec{Image: "x"}, "small"},
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
	for _, unknown := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		priced[2].Price = unknown
		if got, err := Select(provider.InstanceTypeSpec{VCPUs: 1}, priced, ""); got != "new" || err != nil {
			t.Errorf("price %v: got %q, %v, want the cheapest of which the price is known", unknown, got, err)
		}
	}
	for i := range priced {
		priced[i].Price = 0
	}
	if got, err := Select(provider.InstanceTypeSpec{VCPUs: 1}, priced, ""); got != "old" || err != nil {
		t.Errorf("got %q, %v, want the smallest where no price is known", got, err)
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
		{"unknown type", provider.InstanceTypeSpec{InstanceType: "huge"}, types, "small", []string{`"huge"`, "nearest of 8: large (8 vCPUs, 32768 MiB, amd64), "}},
		{"too large", provider.InstanceTypeSpec{VCPUs: 9, Memory: 77}, types, "small", []string{"9 vCPUs, 77 MiB", "large (8 vCPUs"}},
		{"too many GPUs", provider.InstanceTypeSpec{GPUs: 5}, types, "small", []string{"5 GPUs"}},
		{"GPU type only", provider.InstanceTypeSpec{Memory: 60000}, types, "small", []string{"60000 MiB"}},
		{"type of another architecture", provider.InstanceTypeSpec{InstanceType: "arm", Arch: "amd64"}, types, "small", []string{"arm64", "amd64"}},
		{"no such architecture", provider.InstanceTypeSpec{Arch: "s390x"}, types, "small", []string{"s390x"}},
		{"no such GPU model", provider.InstanceTypeSpec{GPU: "h100"}, types, "small", []string{"1 GPUs h100", "gpu1 (4 vCPUs, 16384 MiB, 1 GPUs nvidia-l4, amd64; no h100)"}},
		{"GPU model without a word", provider.InstanceTypeSpec{GPU: "--"}, types, "small", []string{`"--"`}},
		{"no list, GPU model", provider.InstanceTypeSpec{GPU: "l4"}, nil, "def", []string{"1 GPUs l4", "name an instance type"}},
		{"unknown name", provider.InstanceTypeSpec{InstanceType: "arm_gpu"}, types, "small", []string{"nearest of 8: arm-gpu ("}},
		{"name of a megabyte", provider.InstanceTypeSpec{InstanceType: strings.Repeat("x", 1<<20)}, types, "small", []string{"nearest of 8"}},
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
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}
