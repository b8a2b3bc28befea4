// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider gives machines of one pool away. Several processes may have one for
// the same pool at a time.
type Provider struct {
	cfg      Config
	pool     []netip.Addr
	identity *identity
	store    *store
	dial     dialer
	locks    keylock.Locks
	// pace is how often rebooting machines are polled.
	pace poll.Pace
	// makerWait is how long a machine that is being made may be another
	// process's that is at it now.
	makerWait time.Duration
}

// New checks cfg and reads the keys. Cluster and machines are first asked when
// they are needed.
func New(cfg Config) (*Provider, error) {
	pool, id, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	st, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	if len(id.hostKeys) == 0 {
		logger().Warn("every host key of a machine is taken: set -ssh-host-key-allowlist-dir (SSH_HOST_KEY_ALLOWLIST_DIR)")
	}
	return &Provider{
		cfg: cfg, pool: pool, identity: id, store: st, dial: dialTCP,
		pace: poll.Pace{First: 500 * time.Millisecond, Max: 5 * time.Second}, makerWait: 10 * time.Second,
	}, nil
}

// Teardown has nothing to release.
func (p *Provider) Teardown() error { return nil }

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	st, err := p.store.read(ctx)
	if err != nil {
		return nil, failure.Classify(fmt.Errorf("get instance %s: %w", instanceID, err))
	}
	addr, e := st.of(instanceID)
	if e == nil {
		return nil, fmt.Errorf("%w: no machine of the pool is instance %q", provider.ErrNotFound, instanceID)
	}
	return e.instance(addr), nil
}

// ListInstances implements provider.Lister.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	st, err := p.store.read(ctx)
	if err != nil {
		return nil, failure.Classify(fmt.Errorf("list instances: %w", err))
	}
	var list []provider.Instance
	for addr, e := range st {
		if e.ID != "" && provider.HasTags(e.Tags, match) {
			list = append(list, *e.instance(addr))
		}
	}
	slices.SortFunc(list, func(a, b provider.Instance) int { return a.IPs[0].Compare(b.IPs[0]) })
	return list, nil
}

// verifyLimit bounds ConfigVerifier.
const verifyLimit = 30 * time.Second

// ConfigVerifier implements provider.Provider: it reads the pool's state, and
// asks each machine that is free whether it could be given away.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	st, err := p.store.read(ctx)
	if err != nil {
		return failure.Classify(fmt.Errorf("verify: %w", err))
	}
	var group sync.WaitGroup
	errs := make([]error, len(p.pool))
	for i, addr := range p.pool {
		if st[addr] == nil {
			group.Go(func() { errs[i] = p.verifyMachine(ctx, addr) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

func (p *Provider) verifyMachine(ctx context.Context, addr netip.Addr) error {
	m, err := p.connect(ctx, addr)
	if err != nil {
		return err
	}
	defer m.close()
	if _, err := m.sftp.Stat("cidata"); err != nil {
		return fmt.Errorf("%w: machine %s: no folder cidata in what its SFTP server shows: %w", provider.ErrNotFound, addr, err)
	}
	boot, err := m.boot(ctx)
	if err == nil && boot == "" {
		logger().Warn("the machine serves no boot id: that it has rebooted shows by its files alone", "machine", addr.String(), "file", bootFile)
	}
	return err
}
