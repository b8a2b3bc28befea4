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
// An architecture, zone list or GPU model that the catalogue leaves empty is
// taken as right: it is unknown, and the cloud will tell. A GPU model is right
// when the catalogue's has every word asked for, whatever the case: "l4" and
// "NVIDIA L4" ask for nvidia-l4, and neither gets nvidia-l40s. So catalogues
// should give vendor and model.
//
// # Order
//
// The best is the first by price, number of GPUs, vCPUs, memory and name, in
// this order, smaller first. A type whose price is unknown (0, negative or no
// number) comes after all whose price is known, so that nobody pays an unknown
// price while there is a known one; among themselves such types are compared
// from the number of GPUs on. The order is total and looks at two types alone:
// another type in the catalogue never changes which of the two is better.
//
// # Refusals
//
// Every error is [provider.ErrInvalidArgument]. With a catalogue it shows the
// three nearest types with their sizes and what is wrong with each. How far
// away a type is is the sum of what it lacks, each from 0 to 1 in millionths: the missing
// part of the vCPUs, memory and GPUs asked for, and 1 for each of another
// architecture, not the GPU model, GPUs that nobody asked for, no zone in
// common and not allowed. Equal distances are in the order above. Where a name
// is unknown, near means the fewest letters to change; where it is not allowed,
// near in size to what it names.
package instancetypes

import (
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// Options are the catalogue and what the operator allows of it.
type Options struct {
	// Types is the catalogue. Without one sizes cannot be compared and give
	// Default; GPUs are refused.
	Types []provider.InstanceType
	// Default is the type of a request that asks for nothing.
	Default string
	// Allow are the types that may be chosen besides Default; none means only
	// Default, "*" means all.
	Allow Patterns
	// Zones, if any, leave out the types that are in none of them.
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

// Rank returns every type that [Options.Select] could give, the best first:
// what to try next when the cloud has no capacity left. It is one where the
// request names a type or the default is taken.
func (o Options) Rank(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	if err := o.Allow.check(); err != nil {
		return nil, err
	}
	if spec.VCPUs < 0 || spec.Memory < 0 || spec.GPUs < 0 {
		return nil, fmt.Errorf("%w: negative size: %s", provider.ErrInvalidArgument, asked(spec))
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
			provider.ErrInvalidArgument, asked(spec))
	case o.Default == "":
		return nil, errNoDefault()
	}
	return []provider.InstanceType{{Name: o.Default}}, nil
}

func errNoDefault() error {
	return fmt.Errorf("%w: no instance type was asked for and no default is set", provider.ErrInvalidArgument)
}

// named looks up a type by name. A catalogue may have several rows of a name,
// such as one for each zone or architecture.
func (o Options) named(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	rows := o.rows(spec.InstanceType)
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: instance type %.64q is not in the list; nearest of %d: %s",
			provider.ErrInvalidArgument, spec.InstanceType, len(o.Types), o.nearestNames(spec.InstanceType))
	}
	if !o.allows(spec.InstanceType) {
		return nil, o.notAllowed(spec.InstanceType)
	}
	place := func(t provider.InstanceType) []lack { return o.misplaced(spec.Arch, t) }
	i := slices.IndexFunc(rows, func(t provider.InstanceType) bool { return len(place(t)) == 0 })
	if i < 0 {
		return nil, fmt.Errorf("%w: instance type %q cannot be used for %s: %s",
			provider.ErrInvalidArgument, spec.InstanceType, o.where(spec.Arch), nearest(rows, place))
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

// fallback is for a request without sizes. A default that is not there, or in
// no zone of ours, is a mistake of the operator's and no reason to choose
// something else.
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

// defaultRows returns the rows of the default that are in our zones.
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

// fitting looks at every type: what fits is not monotone in any order of
// types, so a search that skips some can miss the best or all.
func (o Options) fitting(spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	fit := slices.DeleteFunc(slices.Clone(o.Types), func(t provider.InstanceType) bool { return len(o.lacks(spec, t)) > 0 })
	if len(fit) == 0 {
		return nil, fmt.Errorf("%w: no instance type has %s; nearest of %d: %s",
			provider.ErrInvalidArgument, asked(spec), len(o.Types), nearest(o.Types, func(t provider.InstanceType) []lack { return o.lacks(spec, t) }))
	}
	slices.SortStableFunc(fit, compare)
	return fit, nil
}
