// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Set are bundles among which a cluster finds its own.
type Set []*Bundle

// LoadSet reads each folder of a folder as a bundle.
func LoadSet(from fs.FS) (Set, error) {
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return nil, err
	}
	var set Set
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		sub, err := fs.Sub(from, e.Name())
		if err != nil {
			return nil, err
		}
		b, err := Load(e.Name(), sub)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set = append(set, b)
	}
	return set, errors.Join(append(errs, set.check())...)
}

// check finds bundles between which nothing decides.
func (s Set) check() error {
	seen := map[string]string{}
	var errs []error
	for _, b := range s {
		key := strings.ToLower(b.Platform) + "/" + b.CloudName
		if other, twice := seen[key]; twice {
			errs = append(errs, fmt.Errorf("bundles %s and %s are both for platform %s, cloud name %q", other, b.Name, b.Platform, b.CloudName))
		}
		seen[key] = b.Name
	}
	return errors.Join(errs...)
}

// Find returns the bundle of a platform, or nil: the platform has no cloud
// controller manager, or none in this flavor. Case does not matter.
func (s Set) Find(platform, cloudName string, flavor Flavor) *Bundle {
	var match *Bundle
	for _, b := range s {
		switch {
		case !strings.EqualFold(b.Platform, platform) || !b.For(flavor):
		case b.CloudName == "" && match == nil, b.CloudName != "" && strings.EqualFold(b.CloudName, cloudName):
			match = b
		}
	}
	return match
}

// Named returns the bundle of that name, or else of a platform of that name.
func (s Set) Named(name string) (*Bundle, error) {
	for _, b := range s {
		if strings.EqualFold(b.Name, name) {
			return b, nil
		}
	}
	for _, b := range s {
		if strings.EqualFold(b.Platform, name) && b.CloudName == "" {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no bundle is named %q; there are %s", name, strings.Join(s.Names(), ", "))
}

// Names returns the bundles' names, sorted.
func (s Set) Names() []string {
	var names []string
	for _, b := range s {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

// With returns the set with further bundles, each in place of the one of the
// same platform and cloud name, if there is one.
func (s Set) With(more ...*Bundle) Set {
	all := slices.Clone(s)
	for _, b := range more {
		all = slices.DeleteFunc(all, func(o *Bundle) bool {
			return strings.EqualFold(o.Platform, b.Platform) && o.CloudName == b.CloudName
		})
		all = append(all, b)
	}
	return all
}
