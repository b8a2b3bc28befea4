// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes EC2 instances in one region.
type Provider struct {
	cfg    Config
	timing timing
	// dial, if any, replaces the dialler of all connections.
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	locks keylock.Locks

	opened    cached.Values[*session]
	images    cached.Values[image]
	templates cached.Values[template]
	catalogue cached.Values[[]provider.InstanceType] // by the standard type
	nvme      cached.Values[bool]                    // by type: whether guests see its volumes as NVMe
	// doubtful holds the subnets in which creations, by key, may have made an
	// instance without our knowing, and when calls may have made snapshots.
	doubtful sync.Map
	// began is when this process began to know anything.
	began time.Time

	life     lifetime.Lifetime
	transMu  sync.Mutex
	transits []*http.Transport
}

// New checks cfg. It connects when it is first called; ConfigVerifier looks at
// the cloud.
func New(cfg Config) (*Provider, error) { return newProvider(cfg, usual) }

func newProvider(cfg Config, t timing) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, timing: t, began: time.Now()}, nil
}

// HasCapability implements provider.Limited. EC2 takes away an address that is not
// elastic when an instance is stopped, and does not stop spot instances that
// were asked for once.
func (p *Provider) HasCapability(c provider.Capability) bool {
	return c != provider.CapabilityPower || !p.cfg.Spot && (!p.cfg.UsePublicIP || p.cfg.ElasticIP)
}

// Teardown ends the calls that are under way and the connections.
func (p *Provider) Teardown() error {
	p.life.End()
	p.transMu.Lock()
	defer p.transMu.Unlock()
	for _, t := range p.transits {
		t.CloseIdleConnections()
	}
	return nil
}

// begin starts a call, whose context also ends with the provider.
func (p *Provider) begin(ctx context.Context) (context.Context, *session, func(), error) {
	ctx, done := p.life.Begin(ctx)
	s, err := p.session(ctx)
	if err != nil {
		done()
		return nil, nil, nil, err
	}
	return ctx, s, done, nil
}

// keepTransport remembers a transport of the SDK's for Teardown.
func (p *Provider) keepTransport(t *http.Transport) {
	if p.dial != nil {
		t.DialContext = p.dial
	}
	p.transMu.Lock()
	defer p.transMu.Unlock()
	p.transits = append(p.transits, t)
}

func (p *Provider) pace() poll.Pace { return poll.Pace{First: p.timing.pause, Max: p.timing.pauseMax} }

// look asks until what may be on its way is seen, or should have been within limit.
func (p *Provider) look(ctx context.Context, limit time.Duration, ask func() (seen bool, err error)) (bool, error) {
	return p.pace().Ticker(0).Look(ctx, time.Now().Add(limit), ask)
}
