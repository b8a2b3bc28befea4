// SPDX-License-Identifier: Apache-2.0

// Package instancetypes chooses the type of an instance from a catalogue.
package instancetypes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Select answers the name of the type for spec, in this order:
//
//  1. the type that spec names,
//  2. the smallest type with the GPUs asked for,
//  3. the smallest type that fits the vCPUs and memory asked for, each only
//     where it is not zero,
//  4. def, or when def has another architecture than spec asks for, the
//     smallest type that has it.
//
// Smallest means the cheapest where every type that fits has a price, and then
// the one with the fewest GPUs, vCPUs, memory, in this order. Every type that
// fits has the architecture asked for (an empty one in the catalogue fits any)
// and, unless GPUs are asked for, no GPU.
//
// With a catalogue the answer is one of its types. Without, only def is
// allowed: sizes cannot be compared and give def, other names and GPUs are
// refused.
//
// Errors are [provider.ErrInvalidArgument] and say what was asked and what
// there is.
func Select(spec provider.InstanceTypeSpec, types []provider.InstanceType, def string) (string, error) {
	if spec.VCPUs < 0 || spec.Memory < 0 || spec.GPUs < 0 {
		return "", fmt.Errorf("%w: negative size: %s", provider.ErrInvalidArgument, asked(spec))
	}
	if len(types) == 0 {
		return withoutCatalogue(spec, def)
	}
	if spec.InstanceType != "" {
		return named(spec.InstanceType, spec, types)
	}
	if spec.VCPUs == 0 && spec.Memory == 0 && spec.GPUs == 0 {
		return fallback(spec, types, def)
	}
	return smallest(spec, types)
}

func withoutCatalogue(spec provider.InstanceTypeSpec, def string) (string, error) {
	switch {
	case spec.InstanceType != "" && spec.InstanceType != def:
		return "", fmt.Errorf("%w: instance type %q is not allowed: without a list of instance types only the default, %q, is",
			provider.ErrInvalidArgument, spec.InstanceType, def)
	case spec.GPUs > 0 && spec.InstanceType == "":
		return "", fmt.Errorf("%w: no instance type has %d GPUs: the list of instance types is empty",
			provider.ErrInvalidArgument, spec.GPUs)
	case def == "":
		return "", errNoDefault()
	}
	return def, nil
}

func errNoDefault() error {
	return fmt.Errorf("%w: no instance type was asked for and no default is set", provider.ErrInvalidArgument)
}

// named looks up a type by name; its size is what it is, its architecture
// must be the one the image needs.
func named(name string, spec provider.InstanceTypeSpec, types []provider.InstanceType) (string, error) {
	i := slices.IndexFunc(types, func(t provider.InstanceType) bool { return t.Name == name })
	if i < 0 {
		return "", fmt.Errorf("%w: instance type %q is not in the list: %s", provider.ErrInvalidArgument, name, catalogue(types))
	}
	if !archFits(spec, types[i]) {
		return "", fmt.Errorf("%w: instance type %q has architecture %s, asked for %s",
			provider.ErrInvalidArgument, name, types[i].Arch, spec.Arch)
	}
	return name, nil
}

func fallback(spec provider.InstanceTypeSpec, types []provider.InstanceType, def string) (string, error) {
	if def == "" && spec.Arch == "" {
		return "", errNoDefault()
	}
	if i := slices.IndexFunc(types, func(t provider.InstanceType) bool { return t.Name == def }); i < 0 && def != "" {
		return "", fmt.Errorf("%w: the default instance type %q is not in the list: %s",
			provider.ErrInvalidArgument, def, catalogue(types))
	} else if i >= 0 && archFits(spec, types[i]) {
		return def, nil
	}
	return smallest(spec, types)
}

// smallest looks at every type: what fits is not monotone in any order of
// types, so a search that skips some can miss the best or all.
func smallest(spec provider.InstanceTypeSpec, types []provider.InstanceType) (string, error) {
	fitting := slices.DeleteFunc(slices.Clone(types), func(t provider.InstanceType) bool { return !fits(spec, t) })
	if len(fitting) == 0 {
		return "", fmt.Errorf("%w: no instance type has %s; there is: %s",
			provider.ErrInvalidArgument, asked(spec), catalogue(types))
	}
	priced := !slices.ContainsFunc(fitting, func(t provider.InstanceType) bool { return t.Price <= 0 })
	return slices.MinFunc(fitting, func(a, b provider.InstanceType) int {
		if priced && a.Price != b.Price {
			return cmp.Compare(a.Price, b.Price)
		}
		return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.VCPUs, b.VCPUs),
			cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Name, b.Name))
	}).Name, nil
}

func fits(spec provider.InstanceTypeSpec, t provider.InstanceType) bool {
	gpus := t.GPUs >= spec.GPUs && (spec.GPUs > 0 || t.GPUs == 0)
	return gpus && t.VCPUs >= spec.VCPUs && t.Memory >= spec.Memory && archFits(spec, t)
}

func archFits(spec provider.InstanceTypeSpec, t provider.InstanceType) bool {
	return spec.Arch == "" || t.Arch == "" || spec.Arch == t.Arch
}

func asked(spec provider.InstanceTypeSpec) string {
	return size(spec.VCPUs, spec.Memory, spec.GPUs, spec.Arch)
}

// maxNamed bounds how many types an error names.
const maxNamed = 20

func catalogue(types []provider.InstanceType) string {
	var list []string
	for _, t := range types {
		if len(list) == maxNamed {
			list = append(list, fmt.Sprintf("and %d more", len(types)-maxNamed))
			break
		}
		list = append(list, fmt.Sprintf("%s (%s)", t.Name, size(t.VCPUs, t.Memory, t.GPUs, t.Arch)))
	}
	return strings.Join(list, ", ")
}

func size(vcpus, memory, gpus int64, arch string) string {
	s := fmt.Sprintf("%d vCPUs, %d MiB", vcpus, memory)
	if gpus != 0 {
		s += fmt.Sprintf(", %d GPUs", gpus)
	}
	if arch != "" {
		s += ", " + arch
	}
	return s
}
