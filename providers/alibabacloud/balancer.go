// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// tagBalancer is the tag of load balancers that holds the key.
const tagBalancer = ownPrefix + "load-balancer"

// maxBalancerTag is the longest key of a tag (CreateLoadBalancer, Tag.N.Key).
const maxBalancerTag = 64

func (b *clb) key() string { return b.tags()[tagBalancer] }

func (b *clb) answer() *provider.LoadBalancer {
	tags := b.tags()
	delete(tags, tagBalancer)
	answer := &provider.LoadBalancer{Key: b.key(), Tags: shown(tags)}
	if addr, err := netip.ParseAddr(b.Address); err == nil {
		answer.Addrs = []netip.Addr{addr}
	}
	return answer
}

// EnsureLoadBalancer implements provider.LoadBalancerController: an instance of
// Classic Load Balancer, with a listener for each port and the Nodes' instances
// as its default servers.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (made *provider.LoadBalancer, err error) {
	defer explain(&err, "load balancer %s", spec.Key)
	pl, err := p.planBalancer(spec)
	if err != nil {
		return nil, err
	}
	unlock, err := p.balancing.Take(ctx, spec.Key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b, err := p.findOrMakeBalancer(ctx, pl)
	if err == nil {
		err = p.fitBalancer(ctx, b, pl)
	}
	if err == nil {
		err = p.serve(ctx, b, spec.Backends)
	}
	if err == nil {
		err = p.listen(ctx, b, spec.Ports)
	}
	if err != nil {
		return nil, err
	}
	return b.answer(), nil
}

// balancerPlan describes the load balancer to make.
type balancerPlan struct {
	key  string
	tags map[string]string
	want balancerSettings
}

func (p *Provider) planBalancer(spec provider.LoadBalancerSpec) (*balancerPlan, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	want, err := p.balancerSettings(spec.Annotations)
	if err != nil {
		return nil, err
	}
	all := tags.Merge(p.cfg.Tags, fitAll(spec.Tags), map[string]string{tagBalancer: spec.Key})
	for name := range all {
		if len(name) > maxBalancerTag {
			return nil, fmt.Errorf("%w: tags: key %.32q… has more than the %d characters that load balancers' tags may have", provider.ErrInvalidArgument, name, maxBalancerTag)
		}
	}
	if err := checkTags(all, 1); err != nil {
		return nil, err
	}
	return &balancerPlan{spec.Key, all, want}, nil
}

// token returns the client token of a generation, as for instances.
func (pl *balancerPlan) token(generation int) string {
	return clientToken("load-balancer", pl.key, strconv.Itoa(generation))
}

// findOrMakeBalancer returns the load balancer of the key. Every call that makes one has
// a different tag, as with instances. So a call that succeeds has made one, and a call
// that is refused because of its token means that another call has made one.
func (p *Provider) findOrMakeBalancer(ctx context.Context, pl *balancerPlan) (*clb, error) {
	if b, err := p.onlyBalancer(ctx, pl.key); b != nil || err != nil {
		return b, err
	}
	for generation := p.memory.spent.get(pl.token(0)); generation < maxGenerations; generation++ {
		p.memory.balancing.put(pl.key, time.Now())
		id, err := p.makeBalancer(ctx, pl, generation)
		if err != nil && !failure.HasCode(err, codeMismatch) {
			return nil, err
		}
		b, err := p.awaitBalancer(ctx, pl.key, id)
		if b != nil || err != nil {
			return b, err
		}
		p.memory.spent.put(pl.token(0), generation+1)
		if id != "" {
			return nil, fmt.Errorf("%w: %s was deleted while it was made", provider.ErrUnavailable, id)
		}
	}
	return nil, fmt.Errorf("%w: key %s was made and deleted %d times; use another", provider.ErrAlreadyExists, pl.key, maxGenerations)
}

// makeBalancer returns the id. The error has codeMismatch if another call used the token.
func (p *Provider) makeBalancer(ctx context.Context, pl *balancerPlan, generation int) (string, error) {
	request := query{
		"LoadBalancerName": "outrigger-" + pl.key, "ClientToken": pl.token(generation), "PayType": "PayOnDemand",
		"AddressType": pl.want.addressType, "DeleteProtection": "off",
		"LoadBalancerSpec": pl.want.spec, "InternetChargeType": pl.want.internetCharge, "VSwitchId": pl.want.vswitch,
	}
	if pl.want.instanceCharge != payBySpec { // that is the default, and the only one outside China
		request["InstanceChargeType"] = pl.want.instanceCharge
	}
	if pl.want.bandwidth > 0 {
		request["Bandwidth"] = strconv.Itoa(pl.want.bandwidth)
	}
	request.tag(tags.Merge(pl.tags, map[string]string{tagAttempt: rand.Text()}))
	var made struct{ LoadBalancerId string }
	if err := p.slb(ctx, "CreateLoadBalancer", request, &made); err != nil {
		return "", p.blameBalancer(pl, err)
	}
	if made.LoadBalancerId == "" {
		return "", fmt.Errorf("slb:CreateLoadBalancer: %w: the answer holds no id", provider.ErrUnknown)
	}
	return made.LoadBalancerId, nil
}

// blameBalancer adds to a refusal the setting that it may be about.
func (p *Provider) blameBalancer(pl *balancerPlan, err error) error {
	if pl.want.vswitch != "" && errors.Is(err, provider.ErrNotFound) {
		return fmt.Errorf("vSwitch %s (annotation %s, or VSWITCH_ID): %w", pl.want.vswitch, annotation("vswitch-id"), err)
	}
	return err
}

// awaitBalancer waits until the list shows the load balancer of a key, with the id if
// that is not empty. It returns nil if the list should show it by now and does not.
func (p *Provider) awaitBalancer(ctx context.Context, key, id string) (*clb, error) {
	var list []*clb
	seen, err := p.look(ctx, time.Now().Add(p.pace.visible), func() (seen bool, err error) {
		list, err = p.balancersBy(ctx, map[string]string{tagBalancer: key})
		return slices.ContainsFunc(list, func(b *clb) bool { return id == "" || b.LoadBalancerId == id }), err
	})
	if err != nil || !seen {
		return nil, err
	}
	return p.oldestBalancer(ctx, list)
}

// onlyBalancer returns the load balancer of a key; nil if the cloud lists none.
func (p *Provider) onlyBalancer(ctx context.Context, key string) (*clb, error) {
	list, err := p.balancersBy(ctx, map[string]string{tagBalancer: key})
	if err != nil {
		return nil, err
	}
	return p.oldestBalancer(ctx, list)
}

// oldestBalancer returns the oldest load balancer of a key and deletes the others: there
// may be two if the cloud has forgotten a client token.
func (p *Provider) oldestBalancer(ctx context.Context, list []*clb) (*clb, error) {
	if len(list) == 0 {
		return nil, nil
	}
	for _, double := range list[1:] {
		if err := p.removeBalancer(ctx, double.LoadBalancerId); err != nil {
			return nil, fmt.Errorf("delete the double %s: %w", double.LoadBalancerId, err)
		}
	}
	return list[0], nil
}

// GetLoadBalancer implements provider.LoadBalancerController.
func (p *Provider) GetLoadBalancer(ctx context.Context, key string) (found *provider.LoadBalancer, err error) {
	defer explain(&err, "get load balancer %s", key)
	b, err := p.lookUpBalancer(ctx, key)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, fmt.Errorf("%w: there is none in %s", provider.ErrNotFound, p.cfg.Region)
	}
	answer := b.answer()
	listeners, err := p.listeners(ctx, b.LoadBalancerId)
	servers, wrong := p.servers(ctx, b.LoadBalancerId)
	if err := errors.Join(err, wrong); err != nil {
		return nil, err
	}
	answer.Ports, answer.Backends = []provider.LoadBalancerPort{}, []provider.LoadBalancerBackend{}
	for _, l := range listeners {
		answer.Ports = append(answer.Ports, l.answer())
	}
	for _, id := range servers {
		answer.Backends = append(answer.Backends, provider.LoadBalancerBackend{InstanceID: id})
	}
	return answer, nil
}

// lookUpBalancer returns the load balancer of a key, or nil. If this process may just
// have made one it waits until the list must show it.
func (p *Provider) lookUpBalancer(ctx context.Context, key string) (*clb, error) {
	until := p.memory.balancing.get(key).Add(p.pace.visible)
	var list []*clb
	_, err := p.look(ctx, until, func() (seen bool, err error) {
		list, err = p.balancersBy(ctx, map[string]string{tagBalancer: key})
		return len(list) > 0 || time.Now().After(until), err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// ListLoadBalancers implements provider.LoadBalancerController.
func (p *Provider) ListLoadBalancers(ctx context.Context, match map[string]string) (all []provider.LoadBalancer, err error) {
	defer explain(&err, "list load balancers")
	list, err := p.balancersBy(ctx, fitAll(match))
	for _, b := range list {
		all = append(all, *b.answer())
	}
	return all, err
}

// DeleteLoadBalancer implements provider.LoadBalancerController. Listeners go
// with the load balancer.
func (p *Provider) DeleteLoadBalancer(ctx context.Context, key string) (err error) {
	defer explain(&err, "delete load balancer %s", key)
	unlock, err := p.balancing.Take(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	for {
		b, err := p.lookUpBalancer(ctx, key)
		if err != nil || b == nil {
			return err
		}
		if err := p.removeBalancer(ctx, b.LoadBalancerId); err != nil {
			return err
		}
		p.memory.balancing.drop(key)
	}
}

// removeBalancer deletes a load balancer. It repeats that while another change is under
// way.
func (p *Provider) removeBalancer(ctx context.Context, id string) error {
	err := p.settled(ctx, func() error {
		return p.slb(ctx, "DeleteLoadBalancer", query{"LoadBalancerId": id}, nil)
	})
	if err != nil && !failure.HasCode(err, codeNoBalancer) {
		return err
	}
	p.memory.deleted.put(id, true)
	return nil
}
