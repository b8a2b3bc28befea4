// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode"

	"github.com/outrigger/outrigger/provider"
)

// whole is a share of 1. Shares are integers so that sums compare exactly.
const whole = 1_000_000

// lack is one thing that a type does not have: how much of it is missing, from
// 0 to whole, and the words for people.
type lack struct {
	share int64
	words string
}

// lacks returns why t does not fit; nothing when it fits.
func (o Options) lacks(spec provider.InstanceTypeSpec, t provider.InstanceType) []lack {
	list := o.misplaced(spec.Arch, t)
	for _, size := range []struct {
		asked, has int64
		words      string
	}{
		{spec.VCPUs, t.VCPUs, "too few vCPUs"},
		{spec.Memory, t.Memory, "too little memory"},
		{spec.GPUs, t.GPUs, "too few GPUs"},
	} {
		if max(size.has, 0) < size.asked {
			list = append(list, lack{missing(size.asked, size.has), size.words})
		}
	}
	switch {
	case t.GPUs > 0 && spec.GPUs == 0:
		list = append(list, lack{whole, "no GPU was asked for"})
	case spec.GPU != "" && (t.GPUs == 0 || !modelFits(spec.GPU, t.GPU)):
		list = append(list, lack{whole, fmt.Sprintf("no %.64s", spec.GPU)})
	}
	return list
}

// misplaced returns what is wrong with t whatever its size.
func (o Options) misplaced(arch string, t provider.InstanceType) []lack {
	var list []lack
	if !archFits(arch, t) {
		list = append(list, lack{whole, "another architecture"})
	}
	if !o.inZones(t) {
		list = append(list, lack{whole, "only in zone " + strings.Join(t.Zones, ", ")})
	}
	if !o.allows(t.Name) {
		list = append(list, lack{whole, "not allowed"})
	}
	return list
}

// missing returns the fraction of asked that has lacks, in millionths, rounded down.
func missing(asked, has int64) int64 {
	high, low := bits.Mul64(uint64(asked-max(has, 0)), whole)
	share, _ := bits.Div64(high, low, uint64(asked))
	return int64(share)
}

func archFits(arch string, t provider.InstanceType) bool {
	return arch == "" || t.Arch == "" || arch == t.Arch
}

func (o Options) inZones(t provider.InstanceType) bool {
	return len(o.Zones) == 0 || len(t.Zones) == 0 ||
		slices.ContainsFunc(t.Zones, func(zone string) bool { return slices.Contains(o.Zones, zone) })
}

func (o Options) allows(name string) bool { return name == o.Default || o.Allow.match(name) }

// modelFits compares words, not letters: l4 is not a l40s.
func modelFits(asked, has string) bool {
	there := words(has)
	for _, word := range words(asked) {
		if len(there) > 0 && !slices.Contains(there, word) {
			return false
		}
	}
	return true
}

func words(model string) []string {
	return strings.FieldsFunc(strings.ToLower(model), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// compare orders types, the best first.
func compare(a, b provider.InstanceType) int {
	return cmp.Or(
		cmp.Compare(price(a), price(b)),
		cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.VCPUs, b.VCPUs),
		cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Name, b.Name))
}

// price returns the price of a type; an unknown price is higher than any other.
func price(t provider.InstanceType) float64 {
	if !(t.Price > 0) { // not a number is not more than 0 either
		return math.Inf(1)
	}
	return t.Price
}
