// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/provider"
)

var _ provider.LoadBalancerController = (*measured)(nil)

// EnsureLoadBalancer implements provider.LoadBalancerController.
func (p *measured) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (_ *provider.LoadBalancer, err error) {
	defer p.took("EnsureLoadBalancer", time.Now(), &err)
	capability, err := need[provider.LoadBalancerController](p)
	if err != nil {
		return nil, err
	}
	return capability.EnsureLoadBalancer(ctx, spec)
}

// GetLoadBalancer implements provider.LoadBalancerController.
func (p *measured) GetLoadBalancer(ctx context.Context, key string) (_ *provider.LoadBalancer, err error) {
	defer p.took("GetLoadBalancer", time.Now(), &err)
	capability, err := need[provider.LoadBalancerController](p)
	if err != nil {
		return nil, err
	}
	return capability.GetLoadBalancer(ctx, key)
}

// ListLoadBalancers implements provider.LoadBalancerController.
func (p *measured) ListLoadBalancers(ctx context.Context, match map[string]string) (_ []provider.LoadBalancer, err error) {
	defer p.took("ListLoadBalancers", time.Now(), &err)
	capability, err := need[provider.LoadBalancerController](p)
	if err != nil {
		return nil, err
	}
	return capability.ListLoadBalancers(ctx, match)
}

// DeleteLoadBalancer implements provider.LoadBalancerController.
func (p *measured) DeleteLoadBalancer(ctx context.Context, key string) (err error) {
	defer p.took("DeleteLoadBalancer", time.Now(), &err)
	capability, err := need[provider.LoadBalancerController](p)
	if err != nil {
		return err
	}
	return capability.DeleteLoadBalancer(ctx, key)
}
