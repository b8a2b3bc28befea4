// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// catalogueLife is how long machine types are taken as known.
const catalogueLife = time.Hour

// catalogue has the machine types of the configured zones.
type catalogue struct {
	turn  chan struct{} // held by whoever reads or fills the rest
	types []provider.InstanceType
	until time.Time
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	types, err := p.types(ctx)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(types)
	for i := range list {
		list[i].Zones = slices.Clone(list[i].Zones)
	}
	return list, nil
}

// types returns the catalogue, which nobody may change.
func (p *Provider) types(ctx context.Context) ([]provider.InstanceType, error) {
	c := &p.catalogue
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: list machine types: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
	if time.Now().Before(c.until) {
		return c.types, nil
	}
	types, err := p.readTypes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list machine types: %w", classify(err))
	}
	c.types, c.until = types, time.Now().Add(catalogueLife)
	return types, nil
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
	types := make([]provider.InstanceType, 0, len(byName))
	for _, t := range byName {
		types = append(types, *t)
	}
	slices.SortFunc(types, func(a, b provider.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
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

// candidate is a type in a zone.
type candidate struct {
	kind provider.InstanceType
	zone string
}

// plan returns where the instance may be made, the best first: the best type
// in every zone that has it, then the next type.
func (p *Provider) plan(ctx context.Context, r *request) ([]candidate, error) {
	if err := r.refuse(); err != nil {
		return nil, err
	}
	types, err := p.types(ctx)
	if err != nil {
		return nil, err
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t provider.InstanceType) bool { return !p.fits(t, r.spec) })
	ranked, err := instancetypes.Options{Types: types, Default: p.cfg.MachineType, Allow: p.cfg.MachineTypes, Zones: p.cfg.Zones}.Rank(r.spec)
	if err != nil {
		return nil, err
	}
	var candidates []candidate
	for _, t := range ranked {
		for _, zone := range p.cfg.Zones {
			if slices.Contains(t.Zones, zone) && len(candidates) < maxCandidates {
				candidates = append(candidates, candidate{t, zone})
			}
		}
	}
	return candidates, nil
}

// refuse returns an error for requests that this provider cannot satisfy.
func (r *request) refuse() error {
	if len(r.spec.Volumes) > 0 {
		return fmt.Errorf("%w: volumes: this provider attaches none", provider.ErrInvalidArgument)
	}
	return nil
}
