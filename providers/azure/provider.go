// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/outrigger/outrigger/provider"
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
	sizes     sizeCache

	// keyMu guards key, which is made when it is first needed.
	keyMu sync.Mutex
	key   string
}

var (
	_ provider.Provider           = (*Provider)(nil)
	_ provider.Lister             = (*Provider)(nil)
	_ provider.Getter             = (*Provider)(nil)
	_ provider.ConsoleReader      = (*Provider)(nil)
	_ provider.PowerController    = (*Provider)(nil)
	_ provider.InstanceTypeLister = (*Provider)(nil)
	_ provider.Limited            = (*Provider)(nil)
)

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
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	r, ok := p.parseID(instanceID)
	if !ok {
		if err := p.elsewhere(instanceID); err != nil {
			return nil, err
		}
		return nil, errNoInstance(instanceID)
	}
	vm, err := p.getVM(ctx, r)
	if err == nil && vm == nil {
		return nil, errNoInstance(instanceID)
	}
	if err != nil {
		return nil, classify(fmt.Errorf("get instance %s: %w", r.name, err))
	}
	instance := p.describe(r, vm)
	if instance.IPs, err = p.addresses(ctx, vm); err != nil {
		return nil, classify(fmt.Errorf("get instance %s: %w", r.name, err))
	}
	return instance, nil
}
