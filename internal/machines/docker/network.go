// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// clusterNetwork is the network of a cluster.
type clusterNetwork struct {
	id, name string
	subnet   netip.Prefix
	gateway  netip.Addr
	pinned   bool
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

// free returns the first address that is not taken.
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
		one := &clusterNetwork{id: n.ID, name: n.Name, pinned: n.Labels[labelPinned] != ""}
		for _, c := range n.IPAM.Config {
			if c.Subnet.Addr().Is4() {
				one.subnet, one.gateway = c.Subnet, c.Gateway
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
func (b *Backend) ensureNetwork(ctx context.Context, cluster identity, subnet string) (*clusterNetwork, error) {
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
	if err := b.makeNetwork(ctx, cluster, ipam, labels); err != nil {
		return nil, err
	}
	return b.onlyNetwork(ctx, cluster.key)
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
	_, err := b.engine.NetworkCreate(ctx, cluster.unique(), client.NetworkCreateOptions{Driver: "bridge", IPAM: ipam, Labels: labels})
	if err != nil && !errdefs.IsConflict(err) {
		return fmt.Errorf("make network %s: %w", cluster.unique(), err)
	}
	return nil
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
		if addr, err := netip.ParseAddr(c.Labels[labelAddress]); err == nil {
			taken[addr] = true
		}
	}
	there, err := b.engine.NetworkInspect(ctx, n.id, client.NetworkInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("inspect network %s: %w", n.name, err)
	}
	for _, c := range there.Network.Containers {
		taken[c.IPv4Address.Addr()] = true
	}
	return taken, nil
}
