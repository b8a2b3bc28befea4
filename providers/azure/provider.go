// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Provider makes VMs in one resource group. Several processes may have one for
// the same group at a time.
type Provider struct {
	cfg       Config
	cloud     *clients
	transport *http.Transport
	tempo     tempo
	locks     keylock.Locks
	creations creations
	sizes     cached.Values[[]vmSize]
	key       cached.Values[string]
}

// New checks cfg. It sends nothing: a cloud that is down for a while must not
// keep this process from starting. ConfigVerifier asks the cloud.
func New(cfg Config) (*Provider, error) {
	transport, err := newTransport(cfg.CAFile)
	if err != nil {
		return nil, errors.Join(err, cfg.validate())
	}
	return open(cfg, transport, standard)
}

func open(cfg Config, transport *http.Transport, t tempo) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cloud, err := connect(cfg, transport, t)
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, cloud: cloud, transport: transport, tempo: t}, nil
}

// HasCapability implements provider.Limited: without boot diagnostics there is no
// console.
func (p *Provider) HasCapability(c provider.Capability) bool {
	return c != provider.CapabilityConsole || p.cfg.BootDiagnostics
}

// Teardown closes idle connections; VMs run on.
func (p *Provider) Teardown() error {
	p.transport.CloseIdleConnections()
	return nil
}

// errNoInstance returns the error about an id that is not, or cannot be, an
// instance's.
func errNoInstance(id string) error {
	return fmt.Errorf("%w: no instance %.300q", provider.ErrNotFound, id)
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance %s", last(instanceID))
	r, ok := p.parseID(instanceID)
	if !ok {
		return nil, cmp.Or(p.elsewhere(instanceID), errNoInstance(instanceID))
	}
	vm, err := p.getVM(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case vm == nil:
		return nil, errNoInstance(instanceID)
	}
	instance := p.describe(r, vm, values(vm.Tags))
	instance.IPs, err = p.addresses(ctx, vm)
	return instance, err
}
