// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"
	vpc "github.com/alibabacloud-go/vpc-20160428/v6/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/places"
)

// catalogue has the cloud's instance types.
type catalogue struct {
	rows []provider.InstanceType
	nics map[string]int32 // most interfaces, by type
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
	vswitches, err := p.vswitches(ctx, spec.Zone != "")
	if err != nil {
		return nil, err
	}
	if there := zonesOf(vswitches); spec.Zone != "" {
		if _, err := places.Zones(there, spec.Zone); err != nil {
			return nil, fmt.Errorf("%w, those of VSWITCH_ID", err)
		}
		vswitches = slices.DeleteFunc(slices.Clone(vswitches), func(at vswitch) bool { return at.zone != spec.Zone })
	}
	kinds, err := p.rank(ctx, spec)
	if err != nil {
		return nil, err
	}
	var list []target
	for _, kind := range kinds {
		for _, at := range vswitches {
			if len(kind.Zones) == 0 || at.zone == "" || slices.Contains(kind.Zones, at.zone) {
				list = append(list, target{places.Place{Type: kind, Zone: at.zone}, at.id})
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
	known, err := p.catalogue(ctx)
	if err != nil {
		return nil, err
	}
	choice.Types = slices.Clone(known.rows)
	if spec.MultiNic {
		choice.Types = slices.DeleteFunc(choice.Types, func(t provider.InstanceType) bool { return known.nics[t.Name] < 2 })
	}
	ranked, err := choice.Rank(spec)
	if err != nil || len(ranked) < 2 || !p.cfg.Prices {
		return ranked, err
	}
	for _, dear := range ranked[:min(len(ranked), maxPriced)] {
		i := slices.IndexFunc(choice.Types, func(t provider.InstanceType) bool { return t.Name == dear.Name })
		choice.Types[i].Price = p.priceOf(ctx, dear.Name)
	}
	return choice.Rank(spec)
}

// catalogue returns the types that may be chosen, from the cache if it is
// fresh.
func (p *Provider) catalogue(ctx context.Context) (*catalogue, error) {
	return p.types.Get(ctx, "", func() (*catalogue, time.Time, error) {
		known, err := p.readCatalogue(ctx)
		return known, time.Now().Add(typesAge), err
	})
}

func (p *Provider) readCatalogue(ctx context.Context) (*catalogue, error) {
	names := append([]string{p.cfg.InstanceType}, p.cfg.InstanceTypes...)
	if len(names) > maxTypeNames || slices.ContainsFunc(names, func(name string) bool { return strings.ContainsAny(name, "*?[") }) {
		names = nil
	}
	rows, nics, err := p.describeTypes(ctx, names)
	if err != nil {
		return nil, err
	}
	if len(p.cfg.InstanceTypes) > 0 {
		// What is sold out now may not be in the next hour.
		zones, err := p.stock(ctx, "", "Available", "SoldOut")
		if err != nil {
			return nil, err
		}
		rows = offered(rows, zones)
	}
	return &catalogue{rows, nics}, nil
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

// priceOf returns what a type costs per hour; 0 if the cloud does not tell, which is not a
// reason to make no instance.
func (p *Provider) priceOf(ctx context.Context, kind string) float64 {
	price, err := p.prices.Get(ctx, kind, func() (float64, time.Time, error) {
		price, err := p.price(ctx, kind)
		if err != nil {
			logger().Warn("the price of an instance type is unknown", "type", kind, "error", err)
		}
		return price, time.Now().Add(pricesAge), ctx.Err()
	})
	if err != nil {
		return 0
	}
	return price
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
func (p *Provider) InstanceTypes(ctx context.Context) (types []provider.InstanceType, err error) {
	defer explain(&err, "instance types")
	rows, _, err := p.describeTypes(ctx, nil)
	if err != nil {
		return nil, err
	}
	zones, err := p.stock(ctx, "", "Available", "SoldOut")
	if err != nil {
		return nil, err
	}
	return offered(rows, zones), nil
}

// vswitch is a vSwitch and what the cloud says of it.
type vswitch struct {
	id, zone, vpc string
	free          int64 // addresses
}

// vswitches returns the vSwitches in the configuration's order. Of one alone
// nothing needs to be known, but by those who ask for its zone.
func (p *Provider) vswitches(ctx context.Context, zone bool) ([]vswitch, error) {
	if len(p.cfg.VSwitchIDs) == 1 && !zone {
		return []vswitch{{id: p.cfg.VSwitchIDs[0]}}, nil
	}
	return p.vswitchCache.Get(ctx, "", func() ([]vswitch, time.Time, error) {
		list, err := p.lookUpVSwitches(ctx)
		return list, time.Time{}, err
	})
}

// lookUpVSwitches reports everything that is wrong with the vSwitches.
func (p *Provider) lookUpVSwitches(ctx context.Context) ([]vswitch, error) {
	var list []vswitch
	var errs []error
	for _, id := range p.cfg.VSwitchIDs {
		at, err := p.describeVSwitch(ctx, id)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case p.cfg.VPCID != "" && at.vpc != p.cfg.VPCID:
			errs = append(errs, bad("vpc-id", "vSwitch %s (VSWITCH_ID) is in %s, not in %s", id, at.vpc, p.cfg.VPCID))
		case len(list) > 0 && at.vpc != list[0].vpc:
			errs = append(errs, bad("vswitch-id", "%s is in %s, and %s in %s: all must be in one VPC", id, at.vpc, list[0].id, list[0].vpc))
		}
		list = append(list, at)
	}
	return list, errors.Join(errs...)
}

func (p *Provider) describeVSwitch(ctx context.Context, id string) (vswitch, error) {
	response, err := call(ctx, p.api, "vpc:DescribeVSwitchAttributes", p.api.vpc().DescribeVSwitchAttributesWithContext,
		&vpc.DescribeVSwitchAttributesRequest{RegionId: new(p.cfg.Region), VSwitchId: new(id)})
	if errors.Is(err, provider.ErrNotFound) {
		return vswitch{}, fmt.Errorf("%w: %w", bad("vswitch-id", "there is no %s in %s", id, p.cfg.Region), err)
	}
	if err != nil {
		return vswitch{}, err
	}
	body := response.Body
	// The cloud answers an empty body for a vSwitch that is not there.
	if body == nil || dara.StringValue(body.VSwitchId) != id {
		return vswitch{}, bad("vswitch-id", "there is no %s in %s", id, p.cfg.Region)
	}
	return vswitch{id, dara.StringValue(body.ZoneId), dara.StringValue(body.VpcId), dara.Int64Value(body.AvailableIpAddressCount)}, nil
}

func zonesOf(vswitches []vswitch) []string {
	var zones []string
	for _, at := range vswitches {
		if at.zone != "" && !slices.Contains(zones, at.zone) {
			zones = append(zones, at.zone)
		}
	}
	return zones
}
