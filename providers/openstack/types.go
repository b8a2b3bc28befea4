// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// catalogueAge is how long the list of flavors is used. They change about
// never.
const catalogueAge = 10 * time.Minute

// catalogue are the flavors, with Nova's ids by their names.
type catalogue struct {
	types []provider.InstanceType
	ids   map[string]string
	read  time.Time
}

// catalogues keeps the catalogue.
type catalogues struct {
	mu   sync.Mutex
	last *catalogue
}

func (p *Provider) catalogue(ctx context.Context, c *clients) (*catalogue, error) {
	p.flavors.mu.Lock()
	last := p.flavors.last
	p.flavors.mu.Unlock()
	if last != nil && time.Since(last.read) < catalogueAge {
		return last, nil
	}
	read, err := readCatalogue(ctx, c, p.cfg.Arch)
	if err != nil {
		return nil, fmt.Errorf("list flavors: %w", err)
	}
	p.flavors.mu.Lock()
	defer p.flavors.mu.Unlock()
	p.flavors.last = read
	return read, nil
}

// readCatalogue leaves GPUs out: Nova reports them in the words of each
// operator only. A flavor with GPUs is asked for by its name.
func readCatalogue(ctx context.Context, c *clients, arch string) (*catalogue, error) {
	pages, err := flavors.ListDetail(c.compute, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	list, err := flavors.ExtractFlavors(pages)
	if err != nil {
		return nil, err
	}
	read := &catalogue{ids: map[string]string{}, read: time.Now()}
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
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("list instance types: %w", err))
	}
	all, err := p.catalogue(ctx, c)
	if err != nil {
		return nil, classify(err)
	}
	return append([]provider.InstanceType(nil), all.types...), nil
}

// flavor is one way to make a server.
type flavor struct{ name, id, zone string }

// choices returns the flavors that fit, the smallest first, each in every zone.
func (p *Provider) choices(ctx context.Context, c *clients, spec provider.InstanceTypeSpec) ([]flavor, error) {
	all, err := p.catalogue(ctx, c)
	if err != nil {
		return nil, err
	}
	ranked, err := instancetypes.Options{Types: all.types, Default: p.cfg.Flavor, Allow: p.cfg.Flavors}.Rank(spec)
	if err != nil {
		return nil, fmt.Errorf("-instance-type (OPENSTACK_FLAVOR), -instance-types (OPENSTACK_FLAVORS): %w", err)
	}
	zones := p.cfg.Zones
	if len(zones) == 0 {
		zones = []string{""}
	}
	var list []flavor
	for _, t := range ranked {
		for _, zone := range zones {
			list = append(list, flavor{t.Name, all.ids[t.Name], zone})
		}
	}
	return list, nil
}
