// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/places"
)

// catalogueLife is how long machine types are taken as known.
const catalogueLife = time.Hour

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) (list []provider.InstanceType, err error) {
	defer explain(&err, "list machine types")
	types, err := p.types(ctx)
	list = slices.Clone(types)
	for i := range list {
		list[i].Zones = slices.Clone(list[i].Zones)
	}
	return list, err
}

// types returns the catalogue, which nobody may change.
func (p *Provider) types(ctx context.Context) ([]provider.InstanceType, error) {
	return p.catalogue.Get(ctx, "", func() ([]provider.InstanceType, time.Time, error) {
		types, err := p.readTypes(ctx)
		return types, time.Now().Add(catalogueLife), err
	})
}

func (p *Provider) readTypes(ctx context.Context) ([]provider.InstanceType, error) {
	byName := map[string]*provider.InstanceType{}
	for _, zone := range p.cfg.Zones {
		err := p.zoneTypes(ctx, zone, func(m machineType) {
			t := byName[m.Name]
			if t == nil {
				t = p.instanceType(m)
				byName[m.Name] = t
			}
			t.Zones = append(t.Zones, zone)
		})
		if err != nil {
			return nil, fmt.Errorf("zone %s (-zone): %w", zone, err)
		}
	}
	var types []provider.InstanceType
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		types = append(types, *byName[name])
	}
	return types, nil
}

func (p *Provider) zoneTypes(ctx context.Context, zone string, each func(machineType)) error {
	query := url.Values{
		"maxResults": {pageSize},
		"fields":     {"nextPageToken,items(name,guestCpus,memoryMb,architecture,deprecated,accelerators)"},
	}
	for {
		var page struct {
			Items []machineType `json:"items"`
			Next  string        `json:"nextPageToken"`
		}
		if err := p.api.get(ctx, "zones/"+zone+"/machineTypes", query, &page); err != nil {
			return err
		}
		for _, m := range page.Items {
			if !m.gone() {
				each(m)
			}
		}
		if page.Next == "" {
			return nil
		}
		query.Set("pageToken", page.Next)
	}
}

// gone reports whether the type can no longer be had.
func (m machineType) gone() bool {
	var deprecation struct {
		State string `json:"state"`
	}
	return json.Unmarshal(m.Deprecated, &deprecation) == nil && (deprecation.State == "OBSOLETE" || deprecation.State == "DELETED")
}

var architectures = map[string]string{"X86_64": "amd64", "ARM64": "arm64"}

func (p *Provider) instanceType(m machineType) *provider.InstanceType {
	t := &provider.InstanceType{Name: m.Name, VCPUs: m.CPUs, Memory: m.MemoryMB, Arch: architectures[m.Architecture]}
	if t.Arch == "" {
		t.Arch = familyArch(m.Name)
	}
	if len(m.Accelerators) > 0 {
		t.GPUs, t.GPU = m.Accelerators[0].Count, m.Accelerators[0].Type
	}
	t.Price, _ = strconv.ParseFloat(p.cfg.Prices[m.Name], 64) // validate has seen to it
	return t
}

// armFamilies are those of Arm machines, for types that do not say.
var armFamilies = []string{"t2a", "c4a", "n4a", "a4x"}

func familyArch(name string) string {
	family, _, _ := strings.Cut(name, "-")
	if slices.Contains(armFamilies, family) {
		return "arm64"
	}
	return "amd64"
}

// confidentialFamilies are the machine families of each technology (page
// "Confidential VM: supported configurations"). The API does not tell.
var confidentialFamilies = map[string][]string{
	"SEV":     {"n2d", "c2d", "c3d", "c4d"},
	"SEV_SNP": {"n2d"},
	"TDX":     {"c3"},
}

// familyHas reports whether a type is of a family with that technology.
func familyHas(name, kind string) bool {
	family, _, _ := strings.Cut(name, "-")
	return kind == "" || slices.Contains(confidentialFamilies[kind], family)
}

// fits reports whether a type can be a confidential VM; one that the operator or
// the pod names is left to the cloud to judge.
func (p *Provider) fits(t provider.InstanceType, spec provider.InstanceTypeSpec) bool {
	return t.Name == p.cfg.MachineType || t.Name == spec.InstanceType || familyHas(t.Name, p.cfg.confidential())
}

// plan returns where the instance may be made, the best first.
func (p *Provider) plan(ctx context.Context, r *request) ([]places.Place, error) {
	if len(r.spec.Volumes) > 0 {
		return nil, fmt.Errorf("%w: volumes: this provider attaches none", provider.ErrInvalidArgument)
	}
	zones, err := places.Zones(p.cfg.Zones, r.spec.Zone)
	if err != nil {
		return nil, fmt.Errorf("%w (-zone, GCP_ZONE)", err)
	}
	types, err := p.types(ctx)
	if err != nil {
		return nil, err
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t provider.InstanceType) bool { return !p.fits(t, r.spec) })
	ranked, err := instancetypes.Options{Types: types, Default: p.cfg.MachineType, Allow: p.cfg.MachineTypes, Zones: zones}.Rank(r.spec)
	return places.Of(ranked, zones, maxCandidates), err
}
