// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/places"
)

// catalogueAge is how long the list of flavors is used. They change about
// never.
const catalogueAge = 10 * time.Minute

// catalogue are the flavors, with Nova's ids by their names.
type catalogue struct {
	types []provider.InstanceType
	ids   map[string]string
}

func (p *Provider) catalogue(ctx context.Context, c *clients) (*catalogue, error) {
	return p.flavors.Get(ctx, "", func() (*catalogue, time.Time, error) {
		read, err := readCatalogue(ctx, c, p.cfg.Arch)
		if err != nil {
			err = fmt.Errorf("list flavors: %w", err)
		}
		return read, time.Now().Add(catalogueAge), err
	})
}

// readCatalogue leaves GPUs out: Nova reports them in the words of each
// operator only. A flavor with GPUs is asked for by its name.
func readCatalogue(ctx context.Context, c *clients, arch string) (*catalogue, error) {
	list, err := all(ctx, flavors.ListDetail(c.compute, flavors.ListOpts{AccessType: flavors.AllAccess}), flavors.ExtractFlavors)
	if err != nil {
		return nil, err
	}
	read := &catalogue{ids: map[string]string{}}
	for _, f := range list {
		if read.ids[f.Name] != "" {
			continue
		}
		read.ids[f.Name] = f.ID
		read.types = append(read.types, provider.InstanceType{Name: f.Name, VCPUs: int64(f.VCPUs), Memory: int64(f.RAM), Arch: arch})
	}
	return read, nil
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *Provider) InstanceTypes(ctx context.Context) (types []provider.InstanceType, err error) {
	defer explain(&err, "list instance types")
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := p.catalogue(ctx, c)
	if err != nil {
		return nil, err
	}
	return slices.Clone(all.types), nil
}

// choice is one way to make a server, with Nova's id of the flavor.
type choice struct {
	places.Place
	id string
}

// choices returns the flavors that fit, the smallest first, each in every zone.
func (p *Provider) choices(ctx context.Context, c *clients, spec provider.InstanceTypeSpec) ([]choice, error) {
	zones, err := places.Zones(p.cfg.Zones, spec.Zone)
	if err != nil {
		return nil, fmt.Errorf("%w (-availability-zones, OPENSTACK_AVAILABILITY_ZONES)", err)
	}
	all, err := p.catalogue(ctx, c)
	if err != nil {
		return nil, err
	}
	ranked, err := instancetypes.Options{Types: all.types, Default: p.cfg.Flavor, Allow: p.cfg.Flavors}.Rank(spec)
	if err != nil {
		return nil, fmt.Errorf("-instance-type (OPENSTACK_FLAVOR), -instance-types (OPENSTACK_FLAVORS): %w", err)
	}
	var list []choice
	for _, place := range places.Of(ranked, zones, math.MaxInt) {
		list = append(list, choice{place, all.ids[place.Type.Name]})
	}
	return list, nil
}
