// SPDX-License-Identifier: Apache-2.0

// Package libvirt runs pod VMs by way of a libvirt daemon, on this machine or
// on another. It speaks the daemon's protocol itself, so it needs neither cgo
// nor libvirt's library.
//
// An instance is a persistent domain whose UUID is derived from the sandbox
// id. That makes it the same instance for whoever asks, and makes the names of
// everything that belongs to it derivable from its id: its volumes begin with
// outrigger-<uuid>-, its MAC addresses come from the UUID, and by them its DHCP
// reservations are found. The domain is defined before anything else exists
// and undefined after everything else is gone, so a process that is killed in
// between leaves an instance that can be listed and deleted.
//
// Key, owner tags, addresses and phase are in the domain's metadata. Domains
// without that metadata are other people's and are never touched.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Provider makes VMs by way of one libvirt daemon. Several processes may have
// one on the same daemon at a time.
type Provider struct {
	cfg    Config
	target *target
	hv     hypervisor
	locks  keylock.Locks
	// maker tells this process's unfinished disks from those of others.
	maker string
	// makerWait is how long a volume may be another process's that makes it now.
	makerWait time.Duration

	// hostMu guards host, which is asked for once.
	hostMu sync.Mutex
	host   *host
}

// New checks cfg. It connects when it is first called: a daemon that is down
// for a while must not keep this process from starting. ConfigVerifier looks at
// the daemon.
func New(cfg Config) (*Provider, error) {
	t, uriErr := parseURI(cfg)
	if err := errors.Join(uriErr, cfg.validate()); err != nil {
		return nil, err
	}
	return newProvider(cfg, t, &client{target: t}), nil
}

func newProvider(cfg Config, t *target, hv hypervisor) *Provider {
	return &Provider{cfg: cfg, target: t, hv: hv, maker: uuid.NewString(), makerWait: otherWait}
}

// HasCapability implements provider.Limited: only where the daemon is on this
// machine does this machine have an address on its networks.
func (p *Provider) HasCapability(c provider.Capability) bool {
	return c != provider.CapabilityNodeAddress || p.target.local()
}

// Teardown closes the connection; VMs run on.
func (p *Provider) Teardown() error {
	p.hv.close()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	r, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	answer, err := p.instance(ctx, r)
	if err != nil {
		return nil, classify(fmt.Errorf("get instance %s: %w", instanceID, err))
	}
	return answer, nil
}

func (p *Provider) existing(ctx context.Context, id string) (*record, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%w: no instance %q: ids are UUIDs", provider.ErrNotFound, id)
	}
	r, err := p.load(ctx, id)
	if errors.Is(err, errForeign) || err == nil && r == nil {
		return nil, fmt.Errorf("%w: no instance %s at %s", provider.ErrNotFound, id, p.target)
	}
	return r, classify(err)
}

// ListInstances implements provider.Lister.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	ids, err := p.hv.domains(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("list instances: %w", err))
	}
	var list []provider.Instance
	for _, id := range ids {
		instance, err := p.listed(ctx, id, match)
		if err != nil {
			return nil, classify(fmt.Errorf("list instances: %w", err))
		}
		if instance != nil {
			list = append(list, *instance)
		}
	}
	return list, nil
}

// listed returns nil for what does not match, is somebody else's or has gone
// since.
func (p *Provider) listed(ctx context.Context, id string, match map[string]string) (*provider.Instance, error) {
	element, err := p.hv.metadata(ctx, id)
	switch {
	case isCode(err, lv.ErrNoDomain, lv.ErrNoDomainMetadata):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r, err := parseRecord(id, element)
	if err != nil {
		logger().Warn("a domain's metadata does not parse; it is left alone", "instance", id, "error", err)
		return nil, nil
	}
	if !provider.HasTags(r.Tags, match) {
		return nil, nil
	}
	instance, err := p.instance(ctx, r)
	if isCode(err, lv.ErrNoDomain) {
		return nil, nil
	}
	return instance, err
}

// PowerOff ends the VM as if its plug was pulled, and keeps its disks: to the
// pod's containers it makes no difference.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	return p.whileLocked(ctx, "power off", instanceID, func(r *record) error { return p.stop(ctx, r.id) })
}

// PowerOn starts the VM, or lets it go on where somebody has paused it.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	return p.whileLocked(ctx, "power on", instanceID, func(r *record) error { return p.run(ctx, r.id) })
}

func (p *Provider) whileLocked(ctx context.Context, what, id string, do func(*record) error) error {
	if _, err := p.existing(ctx, id); err != nil {
		return err
	}
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return classify(fmt.Errorf("%s %s: %w", what, id, err))
	}
	defer unlock()
	r, err := p.existing(ctx, id)
	if err != nil {
		return err
	}
	if err := do(r); err != nil {
		return classify(fmt.Errorf("%s %s: %w", what, id, err))
	}
	return nil
}

// run makes a domain run that exists.
func (p *Provider) run(ctx context.Context, id string) error {
	err := p.hv.start(ctx, id)
	if !isCode(err, lv.ErrOperationInvalid) {
		return stuck(err)
	}
	state, stateErr := p.hv.state(ctx, id)
	switch {
	case stateErr != nil:
		return errors.Join(err, stateErr)
	case state == lv.DomainRunning, state == lv.DomainBlocked:
		return nil
	case state == lv.DomainPaused:
		return p.hv.resume(ctx, id)
	}
	return err
}

// stop ends a domain, if it is there and runs.
func (p *Provider) stop(ctx context.Context, id string) error {
	err := p.hv.destroy(ctx, id)
	if isCode(err, lv.ErrNoDomain, lv.ErrOperationInvalid) {
		return nil
	}
	return stuck(err)
}

// stuck says how to go on with a domain that no call can change. A daemon (libvirt 9.0) that was killed
// before it knew the process of a domain's QEMU finds the domain being started when it is there again,
// and waits for the end of that for ever.
func stuck(err error) error {
	if !isCode(err, lv.ErrOperationTimeout) {
		return err
	}
	return fmt.Errorf("%w; if it stays so, stop the daemon, remove the domain's file from /run/libvirt/qemu, and start the daemon", err)
}

// NodeAddress implements provider.NodeAddresser: this machine's address on the
// VMs' network.
func (p *Provider) NodeAddress(ctx context.Context) (netip.Addr, error) {
	if !p.target.local() {
		return netip.Addr{}, fmt.Errorf("%w: %s is another machine", provider.ErrUnimplemented, p.target)
	}
	networks := p.networks()
	n, err := p.networkNamed(ctx, networks[len(networks)-1])
	if err != nil {
		return netip.Addr{}, classify(err)
	}
	for _, subnet := range n.subnets {
		return subnet.gateway, nil
	}
	return netip.Addr{}, fmt.Errorf("%w: network %s has no address on this machine", provider.ErrNotFound, n.name)
}
