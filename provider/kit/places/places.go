// SPDX-License-Identifier: Apache-2.0

// Package places makes an instance in the first of several places that has room for it.
package places

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Place is an instance type in a zone, which is empty where the cloud chooses.
type Place struct {
	Type provider.InstanceType
	Zone string
}

// String returns the place for messages.
func (p Place) String() string {
	if p.Zone == "" {
		return p.Type.Name
	}
	return p.Type.Name + " in zone " + p.Zone
}

// Of returns at most most places, the best first: the first type in each of the zones that has it, then the next
// type. Without zones the cloud chooses; a type that names none is in all.
func Of(types []provider.InstanceType, zones []string, most int) []Place {
	if len(zones) == 0 {
		zones = []string{""}
	}
	var list []Place
	for _, t := range types {
		for _, zone := range zones {
			if zone == "" || len(t.Zones) == 0 || slices.Contains(t.Zones, zone) {
				list = append(list, Place{t, zone})
			}
		}
	}
	return list[:min(len(list), most)]
}

// Zones returns where an instance may be made that asks for a zone: there, or in all of those configured if it
// asks for none. Without any configured the cloud judges the zone.
func Zones(configured []string, wanted string) ([]string, error) {
	switch {
	case wanted == "":
		return configured, nil
	case len(configured) > 0 && !slices.Contains(configured, wanted):
		return nil, fmt.Errorf("%w: zone %q: instances are made in %s", provider.ErrInvalidArgument, wanted, strings.Join(configured, ", "))
	}
	return []string{wanted}, nil
}

// NoCapacity reports whether the cloud had none left.
func NoCapacity(err error) bool { return errors.Is(err, provider.ErrCapacity) }

// Try calls make for one place after the other. It goes on to the next only after an error that full accepts, if
// make returned nothing with it: else there could be two. What make returned with its last error is returned
// too; the class of the error is that of the last, unless all places were full.
func Try[P, M any](list []P, full func(error) bool, make func(P) (*M, error)) (*M, error) {
	var refusals []error
	for _, place := range list {
		made, err := make(place)
		switch {
		case err == nil:
			return made, nil
		case made == nil && full(err):
			refusals = append(refusals, err)
		case len(refusals) > 0:
			return made, fmt.Errorf("%w\nbefore that, no room in %d places: %v", err, len(refusals), errors.Join(refusals...))
		default:
			return made, err
		}
	}
	return nil, errors.Join(refusals...)
}
