// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes VMs in one workspace.
type Provider struct {
	cfg   Config
	api   *client
	locks keylock.Locks
	// wait is how often it looks whether something is done.
	wait poll.Pace
}

// New checks cfg. It asks nobody: a cloud that is out of reach for a while must
// not keep this process from starting. ConfigVerifier asks.
func New(cfg Config) (*Provider, error) {
	if cfg.EarlierBuildTimeout != 0 {
		cfg.BuildTimeout = cfg.EarlierBuildTimeout
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	api, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, api: api, wait: poll.Pace{First: time.Second, Max: 5 * time.Second}}, nil
}

// Teardown ends what goes on, and waits for it: what a creation has sent is
// then made or not, and another provider sees it. VMs run on.
func (p *Provider) Teardown() error {
	p.api.life.End()
	p.api.rest.HTTP.CloseIdleConnections()
	return nil
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance")
	existing, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	return p.answer(ctx, existing)
}

// existing returns an instance of ours.
func (p *Provider) existing(ctx context.Context, id string) (*vm, error) {
	if !token.MatchString(id) {
		return nil, fmt.Errorf("%w: no instance %q", provider.ErrNotFound, id)
	}
	existing, err := p.getVM(ctx, id)
	if err != nil {
		return nil, err
	}
	if existing == nil || !ours(existing) {
		return nil, fmt.Errorf("%w: no instance %s in workspace %s", provider.ErrNotFound, id, p.cfg.ServiceInstance)
	}
	return existing, nil
}

// ours reports whether an instance was made by this provider for anybody.
func ours(v *vm) bool {
	return strings.HasPrefix(v.Name, namePrefix) && decodeTags(v.UserTags)[provider.TagKey] != ""
}

// getVM returns nil for what does not exist.
func (p *Provider) getVM(ctx context.Context, id string) (*vm, error) {
	var v vm
	err := p.api.send(ctx, http.MethodGet, "/pvm-instances/"+id, nil, &v)
	switch {
	case failure.HasStatus(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case v.status() == statusDeleted:
		return nil, nil
	}
	return &v, nil
}

// list returns the instances whose names pred likes, with their tags: a list
// has none, and each is asked for.
func (p *Provider) list(ctx context.Context, pred func(name string) bool) ([]*vm, error) {
	var all struct {
		Instances []vm `json:"pvmInstances"`
	}
	if err := p.api.send(ctx, http.MethodGet, "/pvm-instances", nil, &all); err != nil {
		return nil, err
	}
	var list []*vm
	for _, short := range all.Instances {
		if !pred(short.Name) {
			continue
		}
		v, err := p.getVM(ctx, short.ID)
		if err != nil {
			return nil, err
		}
		if v != nil && ours(v) {
			list = append(list, v)
		}
	}
	return list, nil
}

// ListInstances implements provider.Lister. It needs a call for each instance
// of Outrigger's in the workspace.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	wanted := func(name string) bool { return strings.HasPrefix(name, namePrefix) }
	if key := match[provider.TagKey]; key != "" {
		wanted = func(name string) bool {
			return strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, suffixOf(key))
		}
	}
	vms, err := p.list(ctx, wanted)
	if err != nil {
		return nil, err
	}
	for _, v := range vms {
		if !provider.HasTags(decodeTags(v.UserTags), match) {
			continue
		}
		i, err := p.answer(ctx, v)
		if err != nil {
			return nil, err
		}
		list = append(list, *i)
	}
	return list, nil
}

// answer returns the instance of the contract.
func (p *Provider) answer(ctx context.Context, v *vm) (*provider.Instance, error) {
	tags := decodeTags(v.UserTags)
	i := &provider.Instance{
		ID: v.ID, Name: v.Name, Key: tags[provider.TagKey], Tags: tags, Created: v.Created.UTC(), State: v.state(),
		Zone: p.cfg.Zone, Region: regionOf(p.cfg.Zone), Type: size{v.SysType, v.Processors, v.Memory}.String(),
	}
	var err error
	i.IPs, err = p.addressesOf(ctx, v)
	return i, err
}

// addressesOf returns the address of a VM, from the API or from the network's
// DHCP service; none while there is none.
func (p *Provider) addressesOf(ctx context.Context, v *vm) ([]netip.Addr, error) {
	if addrs := v.addresses(p.cfg.Network, p.cfg.UsePublicIP); addrs != nil || p.cfg.UsePublicIP {
		return addrs, nil
	}
	var mac string
	for _, n := range v.Networks {
		if n.NetworkID == p.cfg.Network {
			mac = n.MAC
		}
	}
	if mac == "" {
		return nil, nil
	}
	var servers []dhcpServer
	if err := p.api.send(ctx, http.MethodGet, "/services/dhcp", nil, &servers); err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s.Network.ID != p.cfg.Network {
			continue
		}
		var server dhcpServer
		if err := p.api.send(ctx, http.MethodGet, "/services/dhcp/"+s.ID, nil, &server); err != nil {
			return nil, err
		}
		for _, lease := range server.Leases {
			if addr, err := netip.ParseAddr(lease.IP); err == nil && strings.EqualFold(lease.MAC, mac) {
				return []netip.Addr{addr}, nil
			}
		}
	}
	return nil, nil
}
