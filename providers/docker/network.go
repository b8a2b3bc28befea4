// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// NodeAddress implements provider.NodeAddresser. On a bridge of this machine's
// engine the node is the gateway; in other cases the node's routes tell.
func (p *Provider) NodeAddress(ctx context.Context) (netip.Addr, error) {
	where, err := client.ParseHostURL(p.cfg.Host)
	if err == nil && where.Scheme != "unix" {
		return localTowards(ctx, where.Host)
	}
	if err == nil {
		err = p.negotiateVersion(ctx)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	result, err := p.engine.NetworkInspect(ctx, p.cfg.Network, client.NetworkInspectOptions{})
	if err != nil {
		return netip.Addr{}, missing(err, "docker-network-name", "DOCKER_NETWORK_NAME", "network", p.cfg.Network)
	}
	for _, subnet := range result.Network.IPAM.Config {
		switch {
		case !subnet.Gateway.IsValid():
		case result.Network.Driver == "bridge":
			return subnet.Gateway, nil
		default:
			return localTowards(ctx, netip.AddrPortFrom(subnet.Gateway, discard).String())
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: -docker-network-name (DOCKER_NETWORK_NAME): network %q has no gateway, so that nothing tells how containers reach this node", provider.ErrNotFound, p.cfg.Network)
}

// discard is a port (RFC 863) for a connection over which nothing is sent.
const discard = 9

// localTowards returns the address with which this node speaks to another.
func localTowards(ctx context.Context, address string) (netip.Addr, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: the route to %s: %w", provider.ErrUnavailable, address, err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
