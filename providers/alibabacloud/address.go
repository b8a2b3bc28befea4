// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"
	vpc "github.com/alibabacloud-go/vpc-20160428/v6/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// elastic is an EIP as the cloud describes it.
type elastic struct {
	id, name, status string
	// holder is the instance or interface it is associated with.
	holder, holderKind string
	addr               netip.Addr
	created            time.Time
	tags               map[string]string
}

// Statuses of EIPs and kinds of what holds them (DescribeEipAddresses).
const (
	eipInUse       = "InUse"
	holderInstance = "EcsInstance"
	holderNIC      = "NetworkInterface"
)

// giveAddress makes the address of its own that a machine's tags ask for.
func (p *Provider) giveAddress(ctx context.Context, m *machine) error {
	holder, kind := m.id, holderInstance
	if m.tags[tagAddress] == addressEgress {
		if err := p.tagInterface(ctx, m); errors.Is(err, provider.ErrNotFound) {
			return fmt.Errorf("%s: %w: %v", m.id, errGone, err)
		} else if err != nil {
			return err
		}
		holder, kind = m.second, holderNIC
	}
	a, err := p.allocate(ctx, m)
	if err != nil {
		return err
	}
	if err := p.associate(ctx, a, holder, kind); err != nil {
		if errors.Is(err, provider.ErrNotFound) { // somebody released it, or deleted the holder
			err = fmt.Errorf("%s: %w: %v", m.id, errGone, err)
		}
		return p.withoutAddress(ctx, m, a, err)
	}
	return p.confirm(ctx, m, a, kind)
}

// confirm checks that the instance still exists: a concurrent deletion may not
// have seen the address. It waits until the cloud lists the address.
func (p *Provider) confirm(ctx context.Context, m *machine, a *elastic, kind string) error {
	gone := false
	_, err := p.look(ctx, time.Now().Add(p.pace.visible), func() (bool, error) {
		seen, err := p.byID(ctx, m.id)
		gone = err == nil && seen == nil
		return gone || err == nil && (kind != holderInstance || seen.public == a.addr), err
	})
	switch {
	case err != nil:
		return fmt.Errorf("wait for address %s of instance %s: %w", a.id, m.id, err)
	case gone:
		return p.withoutAddress(ctx, m, a, fmt.Errorf("%s: %w", m.id, errGone))
	case kind == holderInstance:
		m.public = a.addr
	}
	return nil
}

// withoutAddress releases an address that could not be used.
func (p *Provider) withoutAddress(ctx context.Context, m *machine, a *elastic, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.pace.undo)
	defer cancel()
	if seen, err := p.byID(ctx, m.id); err != nil || seen != nil {
		return cause // it is released with the instance
	}
	if err := p.release(ctx, a); err != nil {
		return errors.Join(cause, fmt.Errorf("release address %s: %w", a.id, err))
	}
	return fmt.Errorf("%s: %w: %v", m.id, errGone, cause)
}

// tagInterface gives the second interface the tags that RunInstances puts on
// the first only.
func (p *Provider) tagInterface(ctx context.Context, m *machine) error {
	_, err := call(ctx, p.api, "ecs:TagResources", p.api.ecs().TagResourcesWithContext, &ecs.TagResourcesRequest{
		RegionId: new(p.cfg.Region), ResourceType: new("eni"), ResourceId: []*string{new(m.second)},
		Tag: tags.List(shown(m.tags), func(key, value string) *ecs.TagResourcesRequestTag {
			return &ecs.TagResourcesRequestTag{Key: new(key), Value: new(value)}
		}),
	})
	return err
}

// allocate returns the address of a machine. Its client token and parameters
// come from the machine, so that all who finish it get the same.
func (p *Provider) allocate(ctx context.Context, m *machine) (*elastic, error) {
	owned := tags.Merge(shown(m.tags), map[string]string{tagInstance: m.id})
	p.memory.made.change(m.id, func(n *made) { n.hasAddress = true })
	response, err := call(ctx, p.api, "vpc:AllocateEipAddress", p.api.vpc().AllocateEipAddressWithContext, &vpc.AllocateEipAddressRequest{
		RegionId: new(p.cfg.Region), Name: new(m.name), Bandwidth: new(strconv.FormatInt(p.cfg.Bandwidth, 10)),
		InstanceChargeType: new("PostPaid"), InternetChargeType: new("PayByTraffic"), ClientToken: new(clientToken("address", m.id)),
		Tag: tags.List(owned, func(key, value string) *vpc.AllocateEipAddressRequestTag {
			return &vpc.AllocateEipAddressRequestTag{Key: new(key), Value: new(value)}
		}),
	})
	if failure.HasCode(err, codeMismatch) {
		return p.allocated(ctx, m)
	}
	if err != nil {
		// A refusal made none; a reply that was lost may have.
		p.memory.made.change(m.id, func(n *made) { n.hasAddress = errors.Is(err, provider.ErrUnavailable) })
		return nil, err
	}
	body := response.Body
	if body == nil || dara.StringValue(body.AllocationId) == "" {
		return nil, fmt.Errorf("vpc:AllocateEipAddress: %w: the answer holds no id", provider.ErrUnknown)
	}
	return &elastic{id: *body.AllocationId, addr: firstAddr(dara.StringValue(body.EipAddress)), tags: owned}, nil
}

// allocated looks for an address that was made with other settings.
func (p *Provider) allocated(ctx context.Context, m *machine) (*elastic, error) {
	var list []*elastic
	_, err := p.look(ctx, time.Now().Add(p.pace.visible), func() (seen bool, err error) {
		list, err = p.addressesBy(ctx, map[string]string{tagInstance: m.id})
		return len(list) > 0, err
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: the address of instance %s was released", provider.ErrUnavailable, m.id)
	}
	return list[0], nil
}

// associate repeats until the cloud agrees, which it does not before the
// instance runs.
func (p *Provider) associate(ctx context.Context, a *elastic, holder, kind string) error {
	request := &vpc.AssociateEipAddressRequest{
		RegionId: new(p.cfg.Region), AllocationId: new(a.id), InstanceId: new(holder), InstanceType: new(kind),
	}
	err := p.settled(ctx, func() error {
		_, err := call(ctx, p.api, "vpc:AssociateEipAddress", p.api.vpc().AssociateEipAddressWithContext, request)
		if !failure.HasCode(err, codeEIPStatus) {
			return err
		}
		seen, lookErr := p.addressByID(ctx, a.id)
		if lookErr != nil || seen != nil && seen.holder == holder { // an earlier call did it
			return lookErr
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("associate address %s with %s: %w", a.id, holder, err)
	}
	return nil
}

// releaseAll releases the addresses of an instance. Where it has one, it may
// not be shown before until.
func (p *Provider) releaseAll(ctx context.Context, instanceID string, until time.Time) error {
	_, err := p.look(ctx, until, func() (bool, error) {
		list, err := p.addressesBy(ctx, map[string]string{tagInstance: instanceID})
		for _, a := range list {
			if err := p.release(ctx, a); err != nil {
				return false, fmt.Errorf("release address %s: %w", a.id, err)
			}
		}
		return len(list) > 0, err
	})
	return err
}

// release repeats until the address is nobody's any more and is gone.
func (p *Provider) release(ctx context.Context, a *elastic) error {
	request := &vpc.ReleaseEipAddressRequest{RegionId: new(p.cfg.Region), AllocationId: new(a.id)}
	return p.settled(ctx, func() error {
		if a.status == eipInUse {
			if err := p.unassociate(ctx, a); err != nil {
				return err
			}
		}
		_, err := call(ctx, p.api, "vpc:ReleaseEipAddress", p.api.vpc().ReleaseEipAddressWithContext, request)
		switch {
		case failure.HasCode(err, codeNoAddress):
			return nil
		case busy(err):
			seen, lookErr := p.addressByID(ctx, a.id)
			if lookErr != nil {
				return lookErr
			}
			if seen != nil {
				a = seen
			}
		}
		return err
	})
}

func (p *Provider) unassociate(ctx context.Context, a *elastic) error {
	_, err := call(ctx, p.api, "vpc:UnassociateEipAddress", p.api.vpc().UnassociateEipAddressWithContext, &vpc.UnassociateEipAddressRequest{
		RegionId: new(p.cfg.Region), AllocationId: new(a.id), InstanceId: new(a.holder), InstanceType: new(a.holderKind),
	})
	if failure.HasCode(err, codeNoAddress) || busy(err) || errors.Is(err, provider.ErrNotFound) {
		return nil // it, or its holder, is on its way already
	}
	return err
}

func (p *Provider) addressByID(ctx context.Context, id string) (*elastic, error) {
	list, err := p.describeAddresses(ctx, &vpc.DescribeEipAddressesRequest{AllocationId: new(id)})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

func (p *Provider) addressesBy(ctx context.Context, match map[string]string) ([]*elastic, error) {
	list, err := p.describeAddresses(ctx, &vpc.DescribeEipAddressesRequest{
		Tag: tags.List(match, func(key, value string) *vpc.DescribeEipAddressesRequestTag {
			return &vpc.DescribeEipAddressesRequestTag{Key: new(key), Value: new(value)}
		}),
	})
	var own []*elastic
	for _, a := range list {
		if provider.HasTags(a.tags, match) {
			own = append(own, a)
		}
	}
	return own, err
}

// describeAddresses returns all pages. Pages have numbers only: an address may
// be missed when others go away meanwhile, and is in the next list.
func (p *Provider) describeAddresses(ctx context.Context, request *vpc.DescribeEipAddressesRequest) ([]*elastic, error) {
	const size = 100
	request.RegionId, request.PageSize = new(p.cfg.Region), new(int32(size))
	seen := map[string]*elastic{}
	var list []*elastic
	for page := int32(1); ; page++ {
		request.PageNumber = new(page)
		response, err := call(ctx, p.api, "vpc:DescribeEipAddresses", p.api.vpc().DescribeEipAddressesWithContext, request)
		if err != nil {
			return nil, err
		}
		if response.Body == nil || response.Body.EipAddresses == nil {
			return list, nil
		}
		rows := response.Body.EipAddresses.EipAddress
		for _, row := range rows {
			if a := elasticOf(row); seen[a.id] == nil {
				seen[a.id] = a
				list = append(list, a)
			}
		}
		if len(rows) < size {
			return list, nil
		}
	}
}

func elasticOf(d *vpc.DescribeEipAddressesResponseBodyEipAddressesEipAddress) *elastic {
	a := &elastic{
		id: dara.StringValue(d.AllocationId), name: dara.StringValue(d.Name), status: dara.StringValue(d.Status),
		holder: dara.StringValue(d.InstanceId), holderKind: dara.StringValue(d.InstanceType),
		addr: firstAddr(dara.StringValue(d.IpAddress)), created: timeOf(dara.StringValue(d.AllocationTime)), tags: map[string]string{},
	}
	if d.Tags != nil {
		for _, tag := range d.Tags.Tag {
			a.tags[dara.StringValue(tag.Key)] = dara.StringValue(tag.Value)
		}
	}
	return a
}
