// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Provider returns p with its calls measured. It has the capabilities that p has;
// ask for them with [provider.As].
func (m *Metrics) Provider(p provider.Provider) provider.Provider {
	return &measured{Provider: p, metrics: m, capabilities: provider.Capabilities(p)}
}

type measured struct {
	provider.Provider
	metrics      *Metrics
	capabilities []provider.Capability
}

var (
	_ provider.Limited            = (*measured)(nil)
	_ provider.Lister             = (*measured)(nil)
	_ provider.Getter             = (*measured)(nil)
	_ provider.ConsoleReader      = (*measured)(nil)
	_ provider.PowerController    = (*measured)(nil)
	_ provider.InstanceTypeLister = (*measured)(nil)
	_ provider.NodeAddresser      = (*measured)(nil)
)

// HasCapability implements provider.Limited.
func (p *measured) HasCapability(c provider.Capability) bool {
	return slices.Contains(p.capabilities, c)
}

func (p *measured) took(call string, began time.Time, err *error) {
	p.metrics.calls.WithLabelValues(p.metrics.provider, call, classOf(*err)).Observe(time.Since(began).Seconds())
}

// CreateInstance implements provider.Provider.
func (p *measured) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (_ *provider.Instance, err error) {
	defer p.took("CreateInstance", time.Now(), &err)
	return p.Provider.CreateInstance(ctx, podName, sandboxID, cloudConfig, spec)
}

// DeleteInstance implements provider.Provider.
func (p *measured) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer p.took("DeleteInstance", time.Now(), &err)
	return p.Provider.DeleteInstance(ctx, instanceID)
}

// ListInstances implements provider.Lister.
func (p *measured) ListInstances(ctx context.Context, match map[string]string) (_ []provider.Instance, err error) {
	defer p.took("ListInstances", time.Now(), &err)
	capability, err := need[provider.Lister](p)
	if err != nil {
		return nil, err
	}
	return capability.ListInstances(ctx, match)
}

// GetInstance implements provider.Getter.
func (p *measured) GetInstance(ctx context.Context, instanceID string) (_ *provider.Instance, err error) {
	defer p.took("GetInstance", time.Now(), &err)
	capability, err := need[provider.Getter](p)
	if err != nil {
		return nil, err
	}
	return capability.GetInstance(ctx, instanceID)
}

// Console implements provider.ConsoleReader.
func (p *measured) Console(ctx context.Context, instanceID string, tailBytes int64) (_ []byte, err error) {
	defer p.took("Console", time.Now(), &err)
	capability, err := need[provider.ConsoleReader](p)
	if err != nil {
		return nil, err
	}
	return capability.Console(ctx, instanceID, tailBytes)
}

// PowerOff implements provider.PowerController.
func (p *measured) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer p.took("PowerOff", time.Now(), &err)
	capability, err := need[provider.PowerController](p)
	if err != nil {
		return err
	}
	return capability.PowerOff(ctx, instanceID)
}

// PowerOn implements provider.PowerController.
func (p *measured) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer p.took("PowerOn", time.Now(), &err)
	capability, err := need[provider.PowerController](p)
	if err != nil {
		return err
	}
	return capability.PowerOn(ctx, instanceID)
}

// InstanceTypes implements provider.InstanceTypeLister.
func (p *measured) InstanceTypes(ctx context.Context) (_ []provider.InstanceType, err error) {
	defer p.took("InstanceTypes", time.Now(), &err)
	capability, err := need[provider.InstanceTypeLister](p)
	if err != nil {
		return nil, err
	}
	return capability.InstanceTypes(ctx)
}

// NodeAddress implements provider.NodeAddresser.
func (p *measured) NodeAddress(ctx context.Context) (_ netip.Addr, err error) {
	defer p.took("NodeAddress", time.Now(), &err)
	capability, err := need[provider.NodeAddresser](p)
	if err != nil {
		return netip.Addr{}, err
	}
	return capability.NodeAddress(ctx)
}

func need[Capability any](p *measured) (Capability, error) {
	capability, ok := provider.As[Capability](p.Provider)
	if !ok {
		return capability, provider.ErrUnimplemented
	}
	return capability, nil
}
