// SPDX-License-Identifier: Apache-2.0

// Package instancetypes chooses the type of an instance from a catalogue.
//
// # Rules
//
// The first of these that the request meets decides:
//
//  1. A type that the request names (annotation machine_type) is taken as it
//     is; only architecture, zone and permission must be right.
//  2. GPUs: the best type with at least that many GPUs of that model, and at
//     least the vCPUs and memory asked for. A model without a number is one GPU.
//  3. vCPUs, memory or both: the best type that has at least as much. Types
//     with GPUs are left out.
//  4. The default; where it has another architecture than the request, the
//     best type that has the one asked for.
//
// An architecture, zone list or GPU model that is empty in the catalogue matches
// every request: it is unknown, and the cloud will refuse the type if it is wrong. A
// GPU model matches if the catalogue's model has every requested word, in upper or
// lower case: "l4" and "NVIDIA L4" match nvidia-l4 and not nvidia-l40s. So catalogues
// should give vendor and model.
//
// # Order
//
// Types are sorted by price, number of GPUs, vCPUs, memory and name, smaller first;
// the first is the best. A type whose price is unknown (0, negative or not a number)
// comes after all types with a known price. Types with unknown prices are sorted by
// the number of GPUs and so on. The order is total, and which of two types is better
// does not depend on the rest of the catalogue.
//
// # Refusals
//
// Every error is [provider.ErrInvalidArgument]. With a catalogue it shows the three
// nearest types with their sizes and what is wrong with each. The distance of a type
// is a sum: the missing fraction of the requested vCPUs, memory and GPUs, and 1 for
// each of these: another architecture, another GPU model, GPUs that were not
// requested, no zone in common, not allowed. It is computed in millionths. Equal
// distances are in the order above. If the requested name is unknown, the nearest
// types are those with the fewest letters to change. If it is not allowed, they are
// those nearest to it in size.
package instancetypes

import (
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// Options are the catalogue and the operator's settings.
type Options struct {
	// Types is the catalogue. Without one, sizes are ignored in favour of Default, and
	// GPUs are refused.
	Types []provider.InstanceType
	// Default is the type for a request without type and sizes.
	Default string
	// Allow are the types that may be chosen besides Default. If it is empty only
	// Default is allowed; "*" allows all.
	Allow Patterns
	// Zones, if any, restrict the choice to types in at least one of them.
	Zones []string
}

// Select returns the name of the type for spec, with every type allowed. See
// [Options.Select].
func Select(spec provider.InstanceTypeSpec, types []provider.InstanceType, def string) (string, error) {
	o := Options{Types: types, Default: def}
	if len(types) > 0 {
		o.Allow = Patterns{"*"}
	}
	chosen, err := o.Select(spec)
	return chosen.Name, err
}

// Select returns the type for spec by the rules of this package. Without a
// catalogue only its name is known.
func (o Options) Select(spec provider.InstanceTypeSpec) (provider.InstanceType, error) {
	ranked, err := o.Rank(spec)
	if err != nil {
		return provider.InstanceType{}, err
	}
	return ranked[0], nil
}

// Rank returns every type that fits spec, the best first: the others are to be tried
// when the cloud has no capacity. There is only one if the request names a type or
// gets the default.
func (o Options) Rank(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	if err := o.Allow.check(); err != nil {
		return nil, err
	}
	if spec.VCPUs < 0 || spec.Memory < 0 || spec.GPUs < 0 {
		return nil, fmt.Errorf("%w: negative size: %s", provider.ErrInvalidArgument, describeSpec(spec))
	}
	if spec.GPU != "" {
		if len(words(spec.GPU)) == 0 {
			return nil, fmt.Errorf("%w: GPU model %.64q has neither letter nor digit", provider.ErrInvalidArgument, spec.GPU)
		}
		spec.GPUs = max(spec.GPUs, 1)
	}
	switch {
	case len(o.Types) == 0:
		return o.withoutCatalogue(spec)
	case spec.InstanceType != "":
		return o.named(spec)
	case spec.VCPUs == 0 && spec.Memory == 0 && spec.GPUs == 0:
		return o.fallback(spec)
	}
	return o.fitting(spec)
}

func (o Options) withoutCatalogue(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	name := spec.InstanceType
	switch {
	case name != "" && !o.allows(name):
		return nil, o.notAllowed(name)
	case name != "":
		return []provider.InstanceType{{Name: name}}, nil
	case spec.GPUs > 0:
		return nil, fmt.Errorf("%w: no instance type has %s: the list of instance types is empty; name an instance type instead",
			provider.ErrInvalidArgument, describeSpec(spec))
	case o.Default == "":
		return nil, errNoDefault()
	}
	return []provider.InstanceType{{Name: o.Default}}, nil
}

func errNoDefault() error {
	return fmt.Errorf("%w: no instance type was asked for and no default is set", provider.ErrInvalidArgument)
}

// named returns the type that spec names. A catalogue may have several rows for a
// name, such as one for each zone or architecture.
func (o Options) named(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	rows := o.rows(spec.InstanceType)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: instance type %.64q is not in the list; nearest of %d: %s",
			provider.ErrInvalidArgument, spec.InstanceType, len(o.Types), o.nearestNames(spec.InstanceType))
	}
	if !o.allows(spec.InstanceType) {
		return nil, o.notAllowed(spec.InstanceType)
	}
	mismatches := func(t provider.InstanceType) []lack { return o.misplaced(spec.Arch, t) }
	i := slices.IndexFunc(rows, func(t provider.InstanceType) bool { return len(mismatches(t)) == 0 })
	if i < 0 {
		return nil, fmt.Errorf("%w: instance type %q cannot be used for %s: %s",
			provider.ErrInvalidArgument, spec.InstanceType, o.where(spec.Arch), nearest(rows, mismatches))
	}
	return rows[i : i+1], nil
}

func (o Options) rows(name string) []provider.InstanceType {
	var rows []provider.InstanceType
	for _, t := range o.Types {
		if t.Name == name && name != "" {
			rows = append(rows, t)
		}
	}
	return rows
}

// fallback returns the type for a request without type and sizes. A default that is
// not in the catalogue, or in none of the zones, is the operator's mistake and an error.
func (o Options) fallback(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	switch {
	case o.Default == "" && spec.Arch == "":
		return nil, errNoDefault()
	case o.Default == "":
		return o.fitting(spec)
	}
	rows, err := o.defaultRows()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(t provider.InstanceType) bool { return archFits(spec.Arch, t) })
	if i < 0 {
		return o.fitting(spec)
	}
	return rows[i : i+1], nil
}

// defaultRows returns the rows of the default type that are in one of Zones.
func (o Options) defaultRows() ([]provider.InstanceType, error) {
	rows := o.rows(o.Default)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: the default instance type %q is not in the list; nearest of %d: %s",
			provider.ErrInvalidArgument, o.Default, len(o.Types), o.nearestNames(o.Default))
	}
	inZones := slices.DeleteFunc(slices.Clone(rows), func(t provider.InstanceType) bool { return !o.inZones(t) })
	if len(inZones) == 0 {
		return nil, fmt.Errorf("%w: the default instance type %q cannot be used for %s: %s; choose another default",
			provider.ErrInvalidArgument, o.Default, o.where(""),
			nearest(rows, func(t provider.InstanceType) []lack { return o.misplaced("", t) }))
	}
	return inZones, nil
}

// fitting returns the types that fit spec. It checks every type: in no order of types
// do those that fit follow each other.
func (o Options) fitting(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	fit := slices.DeleteFunc(slices.Clone(o.Types), func(t provider.InstanceType) bool { return len(o.lacks(spec, t)) > 0 })
	if len(fit) == 0 {
		return nil, fmt.Errorf("%w: no instance type has %s; nearest of %d: %s",
			provider.ErrInvalidArgument, describeSpec(spec), len(o.Types), nearest(o.Types, func(t provider.InstanceType) []lack { return o.lacks(spec, t) }))
	}
	slices.SortStableFunc(fit, compare)
	return fit, nil
}
