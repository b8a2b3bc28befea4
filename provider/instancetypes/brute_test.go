// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// TestAgainstBruteForce compares with the package's documentation, written down
// again as plainly as it goes, over random catalogues and requests.
func TestAgainstBruteForce(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	const catalogues = 10_000
	for n := range catalogues {
		o, spec := randomOptions(random), randomSpec(random)
		best, all := bruteForce(o, spec)
		got, err := o.Select(spec)
		switch {
		case best == "" && err == nil, best != "" && got.Name != best:
			t.Fatalf("seed %d, catalogue %d: %+v of %+v: got %q, %v, want %q", seed, n, spec, o, got.Name, err, best)
		case best == "":
			refused++
			checkNearest(t, err, all)
		}
		shuffled := o
		shuffled.Types = append([]provider.InstanceType(nil), o.Types...)
		random.Shuffle(len(shuffled.Types), func(i, j int) {
			shuffled.Types[i], shuffled.Types[j] = shuffled.Types[j], shuffled.Types[i]
		})
		if again, _ := shuffled.Select(spec); again.Name != got.Name {
			t.Fatalf("seed %d, catalogue %d: %q, and %q when the catalogue has another order", seed, n, got.Name, again.Name)
		}
	}
	if refused < catalogues/20 || refused > catalogues*19/20 {
		t.Errorf("%d of %d requests were refused: the test does not see both sides", refused, catalogues)
	}
}

func pick[V any](random *rand.Rand, from ...V) V { return from[random.IntN(len(from))] }

func randomOptions(random *rand.Rand) Options {
	o := Options{
		Allow: pick(random, nil, Patterns{"*"}, Patterns{"*"}, Patterns{"a*", "b1?"}, Patterns{"c3"}),
		Zones: pick(random, nil, nil, []string{"z1"}, []string{"z2", "z3"}),
	}
	for i := range 1 + random.IntN(12) {
		row := provider.InstanceType{
			Name:   fmt.Sprintf("%s%d", pick(random, "a", "b", "c"), i),
			VCPUs:  1 + random.Int64N(6),
			Memory: 512 * (1 + random.Int64N(6)),
			Arch:   pick(random, "amd64", "amd64", "arm64", ""),
			Zones:  pick(random, nil, []string{"z1"}, []string{"z1", "z2"}, []string{"z3"}),
			Price:  pick(random, 0, 0, 1, 2, 2.5, -1),
		}
		if random.IntN(3) == 0 {
			row.GPUs, row.GPU = 1+random.Int64N(3), pick(random, "nvidia-l4", "nvidia-l40s", "amd-mi300", "")
		}
		o.Types = append(o.Types, row)
	}
	o.Default = pick(random, o.Types...).Name
	return o
}

func randomSpec(random *rand.Rand) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{
		VCPUs:  pick(random, 0, 1+random.Int64N(7)),
		Memory: pick(random, 0, 1+random.Int64N(3500)),
		GPUs:   pick(random, 0, 0, 0, random.Int64N(4)),
		GPU:    pick(random, "", "", "", "l4", "NVIDIA L4", "nvidia"),
		Arch:   pick(random, "", "amd64", "arm64"),
	}
}

// judged is a type with how far away it is, as brute force sees it.
type judged struct {
	provider.InstanceType
	distance int64 // in millionths
	wrong    int
}

// bruteForce returns the name of the best type, or none, and all types, the
// nearest first.
func bruteForce(o Options, spec provider.InstanceTypeSpec) (string, []judged) {
	if spec.GPU != "" && spec.GPUs == 0 {
		spec.GPUs = 1
	}
	nothing := spec.VCPUs == 0 && spec.Memory == 0 && spec.GPUs == 0
	var all []judged
	best := ""
	var bestRow provider.InstanceType
	for _, row := range o.Types {
		j := judge(o, spec, row)
		all = append(all, j)
		if nothing && row.Name == o.Default {
			if !anyOf(row.Zones, o.Zones) {
				return "", nil
			}
			if spec.Arch == "" || row.Arch == "" || row.Arch == spec.Arch {
				return row.Name, nil
			}
		}
		if j.wrong == 0 && (best == "" || better(row, bestRow)) {
			best, bestRow = row.Name, row
		}
	}
	if nothing && outOfZone(o) {
		return "", nil
	}
	sort.SliceStable(all, func(i, j int) bool {
		if all[i].distance != all[j].distance {
			return all[i].distance < all[j].distance
		}
		return better(all[i].InstanceType, all[j].InstanceType)
	})
	return best, all
}

func outOfZone(o Options) bool {
	for _, row := range o.Types {
		if row.Name == o.Default {
			return !anyOf(row.Zones, o.Zones)
		}
	}
	return false
}

func judge(o Options, spec provider.InstanceTypeSpec, row provider.InstanceType) judged {
	j := judged{InstanceType: row}
	add := func(bad bool, share int64) {
		if bad {
			j.wrong++
			j.distance += share
		}
	}
	const one = 1_000_000
	add(spec.Arch != "" && row.Arch != "" && row.Arch != spec.Arch, one)
	add(!anyOf(row.Zones, o.Zones), one)
	add(!allowedByHand(o, row.Name), one)
	add(row.VCPUs < spec.VCPUs, part(spec.VCPUs, row.VCPUs))
	add(row.Memory < spec.Memory, part(spec.Memory, row.Memory))
	add(row.GPUs < spec.GPUs, part(spec.GPUs, row.GPUs))
	add(row.GPUs > 0 && spec.GPUs == 0, one)
	add(spec.GPU != "" && (row.GPUs == 0 || !modelByHand(spec.GPU, row.GPU)), one)
	return j
}

func part(asked, has int64) int64 {
	if asked <= has {
		return 0
	}
	return (asked - has) * 1_000_000 / asked
}

func anyOf(has, wanted []string) bool {
	if len(has) == 0 || len(wanted) == 0 {
		return true
	}
	for _, a := range has {
		for _, b := range wanted {
			if a == b {
				return true
			}
		}
	}
	return false
}

func allowedByHand(o Options, name string) bool {
	if name == o.Default {
		return true
	}
	switch strings.Join(o.Allow, ",") {
	case "*":
		return true
	case "a*,b1?":
		return name[0] == 'a' || len(name) == 3 && name[:2] == "b1"
	case "c3":
		return name == "c3"
	}
	return false
}

func modelByHand(asked, has string) bool {
	switch asked {
	case "l4", "NVIDIA L4":
		return has == "" || has == "nvidia-l4"
	case "nvidia":
		return has == "" || strings.HasPrefix(has, "nvidia")
	}
	return true
}

func better(a, b provider.InstanceType) bool {
	switch aKnown, bKnown := a.Price > 0, b.Price > 0; {
	case aKnown != bKnown:
		return aKnown
	case aKnown && a.Price != b.Price:
		return a.Price < b.Price
	case a.GPUs != b.GPUs:
		return a.GPUs < b.GPUs
	case a.VCPUs != b.VCPUs:
		return a.VCPUs < b.VCPUs
	case a.Memory != b.Memory:
		return a.Memory < b.Memory
	}
	return a.Name < b.Name
}

// checkNearest looks for the three nearest types in the error, in their order.
func checkNearest(t *testing.T, err error, all []judged) {
	t.Helper()
	if !errors.Is(err, provider.ErrInvalidArgument) {
		t.Fatalf("error %v", err)
	}
	if all == nil {
		return // the default is wrong, which has its own words
	}
	_, list, _ := strings.Cut(err.Error(), "nearest of ")
	for _, near := range all[:min(3, len(all))] {
		_, rest, ok := strings.Cut(list, near.Name+" ("+size(near.VCPUs, near.Memory, near.GPUs, near.GPU, near.Arch)+"; ")
		if !ok {
			t.Fatalf("error %q does not show %s next, at distance %v of %+v", err, near.Name, near.distance, all)
		}
		list = rest
	}
	if strings.Count(list, " (") != 0 {
		t.Fatalf("error %q shows more than three types", err)
	}
}
