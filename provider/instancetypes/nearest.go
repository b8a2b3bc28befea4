// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// shown is how many types an error names.
const shown = 3

// nearest describes the types that lack least.
func nearest(types []provider.InstanceType, lacks func(provider.InstanceType) []lack) string {
	return describe(types, lacks, func(t provider.InstanceType) int64 {
		var sum int64
		for _, l := range lacks(t) {
			sum += l.share
		}
		return sum
	})
}

// longestName bounds the work for a name from an annotation, which may be long.
const longestName = 64

// nearestNames describes the types whose names are most like name.
func (o Options) nearestNames(name string) string {
	mismatches := func(t provider.InstanceType) []lack { return o.misplaced("", t) }
	return describe(o.Types, mismatches, func(t provider.InstanceType) int64 {
		return int64(edits(cut(name), cut(t.Name)))
	})
}

func cut(name string) string { return name[:min(len(name), longestName)] }

// describe shows the nearest types, each with its size and what it lacks.
func describe(types []provider.InstanceType, lacks func(provider.InstanceType) []lack, distance func(provider.InstanceType) int64) string {
	type candidate struct {
		provider.InstanceType
		distance int64
	}
	var list []candidate
	for _, t := range types {
		list = append(list, candidate{t, distance(t)})
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), compare(a.InstanceType, b.InstanceType))
	})
	var texts []string
	for _, c := range list[:min(len(list), shown)] {
		text := c.Name + " (" + size(c.VCPUs, c.Memory, c.GPUs, c.GPU, c.Arch)
		for _, l := range lacks(c.InstanceType) {
			text += "; " + l.words
		}
		texts = append(texts, text+")")
	}
	return strings.Join(texts, ", ")
}

// edits returns the number of letters to insert, remove or replace to get from a to b
// (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (o Options) notAllowed(name string) error {
	allowed := slices.Clone(o.Allow)
	if o.Default != "" {
		allowed = append(Patterns{fmt.Sprintf("the default %q", o.Default)}, allowed...)
	}
	if len(allowed) == 0 {
		allowed = Patterns{"none"}
	}
	err := fmt.Errorf("%w: instance type %.64q is not allowed; allowed: %s", provider.ErrInvalidArgument, name, strings.Join(allowed, ", "))
	rows := o.rows(name)
	if len(rows) == 0 {
		return err
	}
	like := provider.InstanceTypeSpec{VCPUs: rows[0].VCPUs, Memory: rows[0].Memory, GPUs: rows[0].GPUs, GPU: rows[0].GPU, Arch: rows[0].Arch}
	others := slices.DeleteFunc(slices.Clone(o.Types), func(t provider.InstanceType) bool { return !o.allows(t.Name) })
	return fmt.Errorf("%w; nearest of %d: %s", err, len(others), nearest(others, func(t provider.InstanceType) []lack { return o.lacks(like, t) }))
}

// where names what a type must be right in whatever its size.
func (o Options) where(arch string) string {
	var parts []string
	if arch != "" {
		parts = append(parts, arch)
	}
	if len(o.Zones) > 0 {
		parts = append(parts, "zone "+strings.Join(o.Zones, " or "))
	}
	return strings.Join(parts, " in ")
}

func describeSpec(spec provider.InstanceTypeSpec) string {
	return size(spec.VCPUs, spec.Memory, spec.GPUs, spec.GPU, spec.Arch)
}

func size(vcpus, memory, gpus int64, gpu, arch string) string {
	s := fmt.Sprintf("%d vCPUs, %d MiB", vcpus, memory)
	if gpus != 0 {
		s += strings.TrimSuffix(fmt.Sprintf(", %d GPUs %.64s", gpus, gpu), " ")
	}
	if arch != "" {
		s += ", " + arch
	}
	return s
}
