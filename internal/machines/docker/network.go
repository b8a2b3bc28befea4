// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// clusterNetwork is the network of a cluster. It always has IPv4, which engines up to
// version 27 cannot leave out; subnet6 and gateway6 are invalid without IPv6.
type clusterNetwork struct {
	id, name          string
	subnet, subnet6   netip.Prefix
	gateway, gateway6 netip.Addr
	families          families
	pinned            bool
}

// host returns the address of the engine's host, of the cluster's first family.
func (n *clusterNetwork) host() netip.Addr { return addresses{n.gateway, n.gateway6}.first(n.families) }

// at returns the addresses that belong together: both are as far from the beginning of
// their subnets, so that only one has to be chosen.
func (n *clusterNetwork) at(v4 netip.Addr) addresses {
	if !n.subnet6.IsValid() {
		return addresses{v4: v4}
	}
	bytes := n.subnet6.Masked().Addr().As16()
	binary.BigEndian.PutUint32(bytes[12:], number(v4)-number(n.subnet.Masked().Addr()))
	return addresses{v4, netip.AddrFrom16(bytes)}
}

// beside returns the IPv4 address that belongs to an IPv6 address; invalid if none does.
func (n *clusterNetwork) beside(v6 netip.Addr) netip.Addr {
	if !n.subnet6.IsValid() || !n.subnet6.Contains(v6) {
		return netip.Addr{}
	}
	bytes := v6.As16()
	if upper := binary.BigEndian.Uint32(bytes[8:]); upper != 0 {
		return netip.Addr{}
	}
	var v4 [4]byte
	binary.BigEndian.PutUint32(v4[:], number(n.subnet.Masked().Addr())+binary.BigEndian.Uint32(bytes[12:]))
	return netip.AddrFrom4(v4)
}

func number(v4 netip.Addr) uint32 {
	bytes := v4.As4()
	return binary.BigEndian.Uint32(bytes[:])
}

// reserved returns the address of the load balancer; without one, that of the first
// machine of the control plane.
func (n *clusterNetwork) reserved() netip.Addr {
	addr := n.subnet.Masked().Addr().Next()
	for addr == n.gateway {
		addr = addr.Next()
	}
	return addr
}

// firstMachine is how far from the subnet's beginning machines' addresses begin.
const firstMachine = 10

func (n *clusterNetwork) free(taken map[netip.Addr]bool) (netip.Addr, error) {
	addr := n.subnet.Masked().Addr()
	for i := 0; i < firstMachine && n.subnet.Bits() <= 27; i++ {
		addr = addr.Next()
	}
	for ; n.subnet.Contains(addr); addr = addr.Next() {
		edge := addr == n.subnet.Masked().Addr() || !n.subnet.Contains(addr.Next()) // network and broadcast
		if !edge && addr != n.gateway && addr != n.reserved() && !taken[addr] {
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: all addresses of network %s (%s) are taken", provider.ErrCapacity, n.name, n.subnet)
}

// networks returns the networks of a cluster, the oldest first: two managers may make
// two.
func (b *Backend) networks(ctx context.Context, cluster string) ([]*clusterNetwork, error) {
	result, err := b.engine.NetworkList(ctx, client.NetworkListOptions{Filters: filter(labelCluster, cluster)})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	slices.SortFunc(result.Items, func(a, b network.Summary) int { return a.Created.Compare(b.Created) })
	var list []*clusterNetwork
	for _, n := range result.Items {
		if !has(n.Labels, labelCluster, cluster) {
			continue
		}
		one := &clusterNetwork{id: n.ID, name: n.Name, pinned: n.Labels[labelPinned] != "", families: cmp.Or(families(n.Labels[labelFamilies]), onlyIPv4)}
		for _, c := range n.IPAM.Config {
			switch {
			case c.Subnet.Addr().Is4():
				one.subnet, one.gateway = c.Subnet, c.Gateway
			case one.families.has6() && n.EnableIPv6:
				one.subnet6, one.gateway6 = c.Subnet, c.Gateway
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// network returns a cluster's, or nil.
func (b *Backend) network(ctx context.Context, cluster string) (*clusterNetwork, error) {
	list, err := b.networks(ctx, cluster)
	for _, n := range list {
		if n.pinned {
			return n, err
		}
	}
	return nil, err
}

// ensureNetwork makes the network that is missing. Engines assign fixed addresses
// only in a subnet that was given explicitly: see chooseSubnet.
func (b *Backend) ensureNetwork(ctx context.Context, cluster identity, subnet string, wanted families) (*clusterNetwork, error) {
	existing, err := b.network(ctx, cluster.key)
	if err != nil || existing != nil {
		return existing, err
	}
	cluster.role = roleNetwork
	unlock, err := b.locks.Take(ctx, allNetworks) // else two clusters choose one subnet
	if err != nil {
		return nil, err
	}
	defer unlock()
	prefix, pool, err := b.chooseSubnet(ctx, cluster, subnet)
	if err != nil {
		return nil, err
	}
	labels := with(cluster.labels(), labelPinned, "true")
	if pool.IsValid() {
		labels[labelPool] = pool.String()
	}
	ipam := &network.IPAM{Driver: "default", Config: []network.IPAMConfig{{Subnet: prefix, Gateway: prefix.Addr().Next()}}}
	if wanted.has6() {
		if prefix, err = b.chooseSubnet6(ctx, cluster); err != nil {
			return nil, err
		}
		ipam.Config = append(ipam.Config, network.IPAMConfig{Subnet: prefix, Gateway: prefix.Addr().Next()})
		labels[labelFamilies] = string(wanted)
	}
	if err := b.makeNetwork(ctx, cluster, ipam, labels); err != nil {
		return nil, err
	}
	return b.onlyNetwork(ctx, cluster.key)
}

// suits returns an error if a network lacks a family that its cluster wants.
func (n *clusterNetwork) suits(wanted families) error {
	if n.families == wanted && n.subnet6.IsValid() == wanted.has6() {
		return nil
	}
	return because(ReasonIPFamily, provider.ErrInvalidArgument,
		"network %s has %s, and the ranges in the Cluster's clusterNetwork are of %s: families do not change; delete the Cluster and create it again", n.name, n.families, wanted)
}

// allNetworks is the key of the lock for creating networks; no cluster has that
// key.
const allNetworks = "networks"

// onlyNetwork returns the oldest network, and removes those that another manager
// has made at the same time: older engines let two have one name.
func (b *Backend) onlyNetwork(ctx context.Context, cluster string) (*clusterNetwork, error) {
	list, err := b.networks(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var only *clusterNetwork
	for _, n := range list {
		if only == nil && n.pinned {
			only = n
		} else if err := b.removeNetwork(ctx, n); err != nil {
			return nil, err
		}
	}
	if only == nil {
		return nil, fmt.Errorf("%w: the network was removed while it was made", provider.ErrUnavailable)
	}
	return only, nil
}

func (b *Backend) makeNetwork(ctx context.Context, cluster identity, ipam *network.IPAM, labels map[string]string) error {
	options := client.NetworkCreateOptions{Driver: "bridge", IPAM: ipam, Labels: labels}
	six := families(labels[labelFamilies]).has6()
	if six {
		options.EnableIPv6 = &six
	}
	_, err := b.engine.NetworkCreate(ctx, cluster.unique(), options)
	switch {
	case err == nil, errdefs.IsConflict(err):
		return nil
	case six && strings.Contains(err.Error(), "IPv6"):
		return because(ReasonIPFamily, provider.ErrUnimplemented, "the engine cannot make a network with IPv6: %w: %s", err, noIPv6)
	}
	return fmt.Errorf("make network %s: %w", cluster.unique(), err)
}

func (b *Backend) removeNetwork(ctx context.Context, n *clusterNetwork) error {
	if _, err := b.engine.NetworkRemove(ctx, n.id, client.NetworkRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove network %s: %w", n.name, err)
	}
	return nil
}

// taken returns the addresses that containers of the cluster have or will have, and
// those of other containers in its network.
func (b *Backend) taken(ctx context.Context, n *clusterNetwork, cluster string) (map[netip.Addr]bool, error) {
	list, err := b.containers(ctx, labelCluster, cluster)
	if err != nil {
		return nil, err
	}
	taken := map[netip.Addr]bool{}
	for _, c := range list {
		for _, text := range addressesIn(c.Labels) {
			if addr, err := netip.ParseAddr(text); err == nil {
				taken[addr], taken[n.beside(addr)] = true, true
			}
		}
	}
	there, err := b.engine.NetworkInspect(ctx, n.id, client.NetworkInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("inspect network %s: %w", n.name, err)
	}
	for _, c := range there.Network.Containers {
		taken[c.IPv4Address.Addr()], taken[n.beside(c.IPv6Address.Addr())] = true, true
	}
	return taken, nil
}
