// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
)

// typeCache caches the cloud's instance types. One caller asks while the others
// wait.
type typeCache struct {
	mu     sync.Mutex
	rows   []provider.InstanceType
	nics   map[string]int32 // most interfaces, by type
	loaded time.Time
	prices map[string]float64 // by type; 0 is one that the cloud has not told
	priced time.Time
}

const (
	// typesAge is how long the catalogue counts as fresh.
	typesAge = time.Hour
	// pricesAge is how long prices do; those of spot instances move.
	pricesAge = time.Hour
	// maxPriced is for how many of the types that fit a price is asked: each is
	// a call, of which an account has some hundred a minute.
	maxPriced = 8
	// maxTypeNames is how many types one call can name.
	maxTypeNames = 10
)

// targets returns where the instance may be made, the best first.
func (p *Provider) targets(ctx context.Context, spec provider.InstanceTypeSpec) ([]target, error) {
	vswitches, err := p.vswitches(ctx)
	if err != nil {
		return nil, err
	}
	kinds, err := p.rank(ctx, spec)
	if err != nil {
		return nil, err
	}
	var list []target
	for _, kind := range kinds {
		for _, at := range vswitches {
			if len(kind.Zones) == 0 || at.zone == "" || slices.Contains(kind.Zones, at.zone) {
				list = append(list, target{kind.Name, at.id, at.zone})
			}
		}
	}
	switch p.cfg.Fallback {
	case fallbackNone:
		list = list[:min(1, len(list))]
	case fallbackZone:
		order := func(t target) int {
			return slices.IndexFunc(vswitches, func(at vswitch) bool { return at.id == t.vswitch })
		}
		slices.SortStableFunc(list, func(a, b target) int { return order(a) - order(b) })
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no type that fits is to be had in the zones of %v (VSWITCH_ID)", provider.ErrCapacity, p.cfg.VSwitchIDs)
	}
	return list, nil
}

// rank returns the types that fit, the best first.
func (p *Provider) rank(ctx context.Context, spec provider.InstanceTypeSpec) ([]provider.InstanceType, error) {
	choice := instancetypes.Options{Default: p.cfg.InstanceType, Allow: p.cfg.InstanceTypes}
	sized := spec.VCPUs != 0 || spec.Memory != 0 || spec.GPUs != 0 || spec.GPU != "" || spec.Arch != ""
	if !sized && !spec.MultiNic && (spec.InstanceType == "" || spec.InstanceType == p.cfg.InstanceType) {
		return choice.Rank(spec) // there is nothing to compare
	}
	rows, nics, err := p.catalogue(ctx)
	if err != nil {
		return nil, err
	}
	choice.Types = rows
	if spec.MultiNic {
		choice.Types = slices.DeleteFunc(slices.Clone(rows), func(t provider.InstanceType) bool { return nics[t.Name] < 2 })
	}
	ranked, err := choice.Rank(spec)
	if err != nil || len(ranked) < 2 || !p.cfg.Prices {
		return ranked, err
	}
	prices := p.prices(ctx, ranked[:min(len(ranked), maxPriced)])
	choice.Types = slices.Clone(choice.Types)
	for i := range choice.Types {
		choice.Types[i].Price = prices[choice.Types[i].Name]
	}
	return choice.Rank(spec)
}

// catalogue returns the types that may be chosen, from the cache if it is
// fresh.
func (p *Provider) catalogue(ctx context.Context) ([]provider.InstanceType, map[string]int32, error) {
	c := &p.types
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.loaded) < typesAge {
		return c.rows, c.nics, nil
	}
	names := append([]string{p.cfg.InstanceType}, p.cfg.InstanceTypes...)
	if len(names) > maxTypeNames || slices.ContainsFunc(names, func(name string) bool { return strings.ContainsAny(name, "*?[") }) {
		names = nil
	}
	rows, nics, err := p.describeTypes(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	if len(p.cfg.InstanceTypes) > 0 {
		// What is sold out now may not be in the next hour.
		zones, err := p.stock(ctx, "", "Available", "SoldOut")
		if err != nil {
			return nil, nil, err
		}
		rows = offered(rows, zones)
	}
	c.rows, c.nics, c.loaded = rows, nics, time.Now()
	return rows, nics, nil
}

// offered fills in the zones of types. Those that are in none stay without:
// the cloud will say what is wrong with them.
func offered(rows []provider.InstanceType, zones map[string][]string) []provider.InstanceType {
	for i := range rows {
		rows[i].Zones = zones[rows[i].Name]
	}
	return rows
}

// describeTypes returns the types of these names, or all.
func (p *Provider) describeTypes(ctx context.Context, names []string) ([]provider.InstanceType, map[string]int32, error) {
	request := &ecs.DescribeInstanceTypesRequest{}
	for _, name := range names {
		request.InstanceTypes = append(request.InstanceTypes, new(name))
	}
	if len(names) == 0 {
		request.MaxResults = new(int64(100))
	}
	var rows []provider.InstanceType
	nics := map[string]int32{}
	for {
		response, err := call(ctx, p.api, "ecs:DescribeInstanceTypes", p.api.ecs().DescribeInstanceTypesWithContext, request)
		if err != nil {
			return nil, nil, err
		}
		if response.Body == nil || response.Body.InstanceTypes == nil {
			return rows, nics, nil
		}
		for _, d := range response.Body.InstanceTypes.InstanceType {
			row := typeOf(d)
			if _, twice := nics[row.Name]; twice || row.Name == "" {
				continue
			}
			nics[row.Name] = dara.Int32Value(d.EniQuantity)
			rows = append(rows, row)
		}
		if dara.StringValue(response.Body.NextToken) == "" {
			return rows, nics, nil
		}
		request.NextToken = response.Body.NextToken
	}
}

var architectures = map[string]string{"X86": "amd64", "ARM": "arm64"}

func typeOf(d *ecs.DescribeInstanceTypesResponseBodyInstanceTypesInstanceType) provider.InstanceType {
	row := provider.InstanceType{
		Name: dara.StringValue(d.InstanceTypeId), VCPUs: int64(dara.Int32Value(d.CpuCoreCount)),
		Memory: int64(math.Round(float64(dara.Float32Value(d.MemorySize)) * 1024)),
		GPUs:   int64(dara.Int32Value(d.GPUAmount)), Arch: architectures[dara.StringValue(d.CpuArchitecture)],
	}
	if row.GPUs > 0 {
		row.GPU = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(dara.StringValue(d.GPUSpec)), " ", "-"))
	}
	return row
}

// stock returns in which zones types are to be had with one of the statuses;
// all types where none is named.
func (p *Provider) stock(ctx context.Context, kind string, statuses ...string) (map[string][]string, error) {
	request := &ecs.DescribeAvailableResourceRequest{
		RegionId: new(p.cfg.Region), DestinationResource: new("InstanceType"), InstanceChargeType: new("PostPaid"), SpotStrategy: new(p.cfg.Spot),
	}
	if kind != "" {
		request.InstanceType = new(kind)
	}
	response, err := call(ctx, p.api, "ecs:DescribeAvailableResource", p.api.ecs().DescribeAvailableResourceWithContext, request)
	if err != nil {
		return nil, err
	}
	zones := map[string][]string{}
	if response.Body == nil || response.Body.AvailableZones == nil {
		return zones, nil
	}
	for _, zone := range response.Body.AvailableZones.AvailableZone {
		if zone.AvailableResources == nil {
			continue
		}
		for _, resource := range zone.AvailableResources.AvailableResource {
			if resource.SupportedResources == nil {
				continue
			}
			for _, one := range resource.SupportedResources.SupportedResource {
				if slices.Contains(statuses, dara.StringValue(one.Status)) {
					name := dara.StringValue(one.Value)
					zones[name] = append(zones[name], dara.StringValue(zone.ZoneId))
				}
			}
		}
	}
	for _, list := range zones {
		slices.Sort(list)
	}
	return zones, nil
}

// prices returns what types cost per hour; what the cloud does not tell is
// missing, which is not a reason to make no instance.
func (p *Provider) prices(ctx context.Context, rows []provider.InstanceType) map[string]float64 {
	c := &p.types
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.priced) > pricesAge {
		c.prices, c.priced = map[string]float64{}, time.Now()
	}
	known := map[string]float64{}
	for _, row := range rows {
		price, ok := c.prices[row.Name]
		if !ok {
			var err error
			if price, err = p.price(ctx, row.Name); err != nil {
				logger().Warn("the price of an instance type is unknown", "type", row.Name, "error", err)
				if ctx.Err() != nil {
					return known
				}
			}
			c.prices[row.Name] = price
		}
		known[row.Name] = price
	}
	return known
}

func (p *Provider) price(ctx context.Context, kind string) (float64, error) {
	response, err := call(ctx, p.api, "ecs:DescribePrice", p.api.ecs().DescribePriceWithContext, &ecs.DescribePriceRequest{
		RegionId: new(p.cfg.Region), ResourceType: new("instance"), InstanceType: new(kind), PriceUnit: new("Hour"),
		SpotStrategy: new(p.cfg.Spot), SystemDisk: &ecs.DescribePriceRequestSystemDisk{Category: new(p.cfg.DiskCategory), Size: new(int32(p.cfg.DiskSize))},
	})
	if err != nil {
		return 0, err
	}
	if response.Body == nil || response.Body.PriceInfo == nil || response.Body.PriceInfo.Price == nil {
		return 0, fmt.Errorf("ecs:DescribePrice: %w: the answer holds no price", provider.ErrUnknown)
	}
	return float64(dara.Float32Value(response.Body.PriceInfo.Price.TradePrice)), nil
}

// InstanceTypes implements provider.InstanceTypeLister: all that the region has.
// Prices are in it where they were asked for.
func (p *Provider) InstanceTypes(ctx context.Context) ([]provider.InstanceType, error) {
	rows, _, err := p.describeTypes(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("instance types: %w", err)
	}
	zones, err := p.stock(ctx, "", "Available", "SoldOut")
	if err != nil {
		return nil, fmt.Errorf("instance types: %w", err)
	}
	return offered(rows, zones), nil
}
