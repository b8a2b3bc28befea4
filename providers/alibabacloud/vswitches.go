// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/alibabacloud-go/tea/dara"
	vpc "github.com/alibabacloud-go/vpc-20160428/v6/client"

	"github.com/outrigger/outrigger/provider"
)

// vswitch is a vSwitch and what the cloud says of it.
type vswitch struct {
	id, zone, vpc string
	free          int64 // addresses
}

// vswitchCache holds what does not change of the vSwitches.
type vswitchCache struct {
	mu   sync.Mutex
	list []vswitch
}

// vswitches returns the vSwitches in the configuration's order. Of one alone
// nothing needs to be known.
func (p *Provider) vswitches(ctx context.Context) ([]vswitch, error) {
	if len(p.cfg.VSwitchIDs) == 1 {
		return []vswitch{{id: p.cfg.VSwitchIDs[0]}}, nil
	}
	c := &p.vswitchCache
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list != nil {
		return c.list, nil
	}
	list, err := p.lookUpVSwitches(ctx)
	if err != nil {
		return nil, err
	}
	c.list = list
	return list, nil
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
