// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes EC2 instances in one region.
type Provider struct {
	cfg    Config
	timing timing
	// dial, if any, replaces the dialler of all connections.
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	locks keylock.Locks

	// opened is guarded by the lock "session".
	opened *session

	images    cache[image]
	templates cache[template]
	catalogue cache[[]provider.InstanceType]
	// doubtful holds the subnets in which creations, by key, may have made an
	// instance without our knowing.
	doubtful memory
	// began is when this process began to know anything.
	began time.Time

	life     context.Context
	end      context.CancelFunc
	calls    sync.WaitGroup
	callsMu  sync.Mutex
	ended    bool
	transMu  sync.Mutex
	transits []*http.Transport
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

// New checks cfg. It connects when it is first called; ConfigVerifier looks at
// the cloud.
func New(cfg Config) (*Provider, error) { return newProvider(cfg, usual) }

func newProvider(cfg Config, t timing) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Provider{cfg: cfg, timing: t, doubtful: memory{subnets: map[string]string{}}, began: time.Now()}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// HasCapability implements provider.Limited. EC2 takes away an address that is not
// elastic when an instance is stopped, and does not stop spot instances that
// were asked for once.
func (p *Provider) HasCapability(c provider.Capability) bool {
	return c != provider.CapabilityPower || !p.cfg.Spot && (!p.cfg.UsePublicIP || p.cfg.ElasticIP)
}

// Teardown ends the calls that are under way and the connections.
func (p *Provider) Teardown() error {
	p.callsMu.Lock()
	p.ended = true
	p.callsMu.Unlock()
	p.end()
	p.calls.Wait()
	p.transMu.Lock()
	defer p.transMu.Unlock()
	for _, t := range p.transits {
		t.CloseIdleConnections()
	}
	return nil
}

// begin starts a call. Its context also ends with the provider.
func (p *Provider) begin(ctx context.Context) (context.Context, func(), error) {
	p.callsMu.Lock()
	defer p.callsMu.Unlock()
	if p.ended {
		return nil, nil, fmt.Errorf("%w: the provider was torn down", provider.ErrUnavailable)
	}
	p.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel(); p.calls.Done() }, nil
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

// backoff is for questions whose answer may lag behind: it lets time pass
// before the next, twice as long each time, and says when it is enough.
type backoff struct {
	pause, max time.Duration
	until      time.Time // zero is for ever
	asked      int
}

// leastAsked is how many times a call is tried even after its time-out: on a
// slow machine or network the first may take all of it.
const leastAsked = 5

// newBackoff of zero has no end but the context's.
func (p *Provider) newBackoff(limit time.Duration) *backoff {
	w := &backoff{pause: p.timing.pause, max: p.timing.pauseMax}
	if limit > 0 {
		w.until = time.Now().Add(limit)
	}
	return w
}

// wait reports whether to ask again, after a pause. The error is that of the
// context.
func (w *backoff) wait(ctx context.Context) (bool, error) {
	w.asked++
	if !w.until.IsZero() && w.asked >= leastAsked && time.Now().After(w.until) {
		return false, nil
	}
	wait := w.pause
	w.pause = min(2*w.pause, w.max)
	if poll.Sleep(ctx, wait) != nil {
		return false, fmt.Errorf("%w: %w", provider.ErrUnavailable, ctx.Err())
	}
	return true, nil
}

// lock waits for the turn of what has that name, until ctx ends.
func (p *Provider) lock(ctx context.Context, name string) (unlock func(), err error) {
	if unlock, err = p.locks.Take(ctx, name); err != nil {
		return nil, fmt.Errorf("%w: waiting for another call: %w", provider.ErrUnavailable, err)
	}
	return unlock, nil
}
