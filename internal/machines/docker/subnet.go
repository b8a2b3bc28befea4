// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// clusterBits is the size of a cluster's subnet: 1022 addresses, more than a Linux
// bridge has ports.
const clusterBits = 22

// chooseSubnet returns the subnet of a new network, and the pool that it is a part of
// if it was not asked for. An engine has some 30 pools of its own, as large as 65534
// addresses, for all its networks: a cluster takes a part of one. If the pools of the
// existing clusters are full, it asks the engine for another: only the engine knows
// which subnets its host does not use.
func (b *Backend) chooseSubnet(ctx context.Context, cluster identity, wanted string) (subnet, pool netip.Prefix, err error) {
	if wanted != "" {
		prefix, err := netip.ParsePrefix(wanted)
		if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 28 {
			return subnet, pool, fmt.Errorf("%w: spec.subnet %q is not an IPv4 subnet of 16 addresses or more, such as 172.30.0.0/24", provider.ErrInvalidArgument, wanted)
		}
		return prefix.Masked(), pool, nil
	}
	networks, err := b.engine.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return subnet, pool, fmt.Errorf("list networks: %w", err)
	}
	taken := subnetsOf(networks.Items, netip.Addr.Is4)
	for _, n := range networks.Items {
		if pool := poolIn(n.Labels); pool.IsValid() {
			if subnet, ok := partOf(pool, taken); ok {
				return subnet, pool, nil
			}
		}
	}
	if pool, err = b.askForPool(ctx, cluster); err != nil {
		return subnet, pool, err
	}
	subnet, _ = partOf(pool, nil)
	return subnet, pool, nil
}

// subnet6Tries is how many subnets chooseSubnet6 tries. By chance not even one is taken, but
// somebody may have given a network a large part of fd00::/8.
const subnet6Tries = 100

// chooseSubnet6 returns an IPv6 subnet of unique local addresses (RFC 4193) that no network
// of the engine has. Engines up to version 26 have no pools of their own for IPv6. The global
// and the subnet ID are a hash of the cluster's key, so that two managers choose the same.
func (b *Backend) chooseSubnet6(ctx context.Context, cluster identity) (netip.Prefix, error) {
	networks, err := b.engine.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list networks: %w", err)
	}
	taken := subnetsOf(networks.Items, netip.Addr.Is6)
	for try := range subnet6Tries {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", cluster.key, try))
		bytes := [16]byte{0xfd}
		copy(bytes[1:8], sum[:])
		if subnet := netip.PrefixFrom(netip.AddrFrom16(bytes), 64); !slices.ContainsFunc(taken, subnet.Overlaps) {
			return subnet, nil
		}
	}
	return netip.Prefix{}, because(ReasonNoSubnet, provider.ErrUnavailable,
		"other networks of the engine have the IPv6 range of local addresses fd00::/8: remove those that nobody needs, or give them smaller subnets (/64)")
}

// subnetsOf returns the subnets of networks that are of a family.
func subnetsOf(networks []network.Summary, ofFamily func(netip.Addr) bool) (taken []netip.Prefix) {
	for _, n := range networks {
		for _, c := range n.IPAM.Config {
			if ofFamily(c.Subnet.Addr()) {
				taken = append(taken, c.Subnet)
			}
		}
	}
	return taken
}

// partOf returns the first part of a pool, as large as a cluster's subnet or the whole
// of it, in which nothing is taken.
func partOf(pool netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	part := netip.PrefixFrom(pool.Addr(), max(pool.Bits(), clusterBits))
	for pool.Contains(part.Addr()) {
		if !slices.ContainsFunc(taken, part.Overlaps) {
			return part, true
		}
		part = after(part)
	}
	return netip.Prefix{}, false
}

// after returns the prefix of the same size that follows; it is invalid after the last.
func after(p netip.Prefix) netip.Prefix {
	at := uint64(number(p.Addr())) + 1<<(32-p.Bits())
	if at > math.MaxUint32 {
		return netip.Prefix{}
	}
	var bytes [4]byte
	binary.BigEndian.PutUint32(bytes[:], uint32(at))
	return netip.PrefixFrom(netip.AddrFrom4(bytes), p.Bits())
}

// askForPool lets the engine choose a pool by creating a network, which is
// removed again.
func (b *Backend) askForPool(ctx context.Context, cluster identity) (netip.Prefix, error) {
	if err := b.makeNetwork(ctx, cluster, nil, cluster.labels()); err != nil {
		return netip.Prefix{}, err
	}
	list, err := b.networks(ctx, cluster.key)
	if err != nil {
		return netip.Prefix{}, err
	}
	var chosen netip.Prefix
	for _, n := range list {
		if n.pinned {
			continue
		}
		chosen = n.subnet.Masked()
		if err := b.removeNetwork(ctx, n); err != nil {
			return netip.Prefix{}, err
		}
	}
	if !chosen.IsValid() {
		return chosen, fmt.Errorf("%w: the engine gives a network no IPv4 subnet: set spec.subnet", provider.ErrUnavailable)
	}
	return chosen, nil
}

// poolIn returns the pool that the labels of a network name, invalid if none.
func poolIn(labels map[string]string) netip.Prefix {
	pool, err := netip.ParsePrefix(labels[labelPool])
	if err != nil || !pool.Addr().Is4() {
		return netip.Prefix{}
	}
	return pool.Masked()
}
