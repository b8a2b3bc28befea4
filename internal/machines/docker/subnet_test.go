// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// TestManyClusters: an engine with two pools of addresses has room for far more than
// two clusters, which share nothing, also when they are made at the same time. What a
// cluster leaves is used again, and the one for which there is no room says what to do.
func TestManyClusters(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	e.pools = []netip.Prefix{netip.MustParsePrefix("172.17.0.0/18"), netip.MustParsePrefix("192.168.0.0/20")}
	const room = 16 + 4
	ensure := func(i int) (*clusterNetwork, error) {
		key := fmt.Sprint("cluster-", i)
		return b.ensureNetwork(t.Context(), identity{key: key, cluster: key, namespace: "ns", name: key}, "", onlyIPv4)
	}
	var all sync.WaitGroup
	for i := range room {
		all.Go(func() {
			if _, err := ensure(i); err != nil {
				t.Errorf("cluster %d: %v", i, err)
			}
		})
	}
	all.Wait()
	var taken []netip.Prefix
	for _, n := range e.networks {
		p := netip.MustParsePrefix(n.IPAM.Config[0].Subnet)
		if slices.ContainsFunc(taken, p.Overlaps) || p.Bits() != clusterBits {
			t.Errorf("subnet %s beside %v", p, taken)
		}
		taken = append(taken, p)
	}
	if len(taken) != room {
		t.Fatalf("%d networks, want %d", len(taken), room)
	}
	_, err := ensure(room)
	if err = classify(err); !errors.Is(err, provider.ErrUnavailable) || !reasonIs(err, ReasonNoSubnet) || !strings.Contains(err.Error(), "spec.subnet") {
		t.Errorf("one too many: %v", err)
	}
	third, err := ensure(3)
	if err == nil {
		err = b.removeNetwork(t.Context(), third)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := ensure(room); err != nil || n.subnet != third.subnet {
		t.Errorf("%+v, %v: want %s, which is free again", n, err, third.subnet)
	}
}

// TestSubnetInPools: the range that was asked for is what a cluster gets, a pool that is
// smaller than a cluster's part is taken whole, and networks of others are left alone.
func TestSubnetInPools(t *testing.T) {
	for _, row := range []struct {
		pool  string
		taken []string
		want  string
	}{
		{"10.0.0.0/16", nil, "10.0.0.0/22"},
		{"10.0.0.0/16", []string{"10.0.0.0/24", "10.0.4.0/22"}, "10.0.8.0/22"},
		{"10.0.0.0/24", nil, "10.0.0.0/24"},
		{"10.0.0.0/24", []string{"10.0.0.128/25"}, ""},
		{"255.255.252.0/22", []string{"255.255.252.0/24"}, ""},
	} {
		var taken []netip.Prefix
		for _, p := range row.taken {
			taken = append(taken, netip.MustParsePrefix(p))
		}
		got, ok := partOf(netip.MustParsePrefix(row.pool), taken)
		if ok != (row.want != "") || ok && got.String() != row.want {
			t.Errorf("%s without %v: %s, want %q", row.pool, row.taken, got, row.want)
		}
	}
}

// TestSubnetsOfIPv6: a cluster has a subnet of unique local addresses that no other network
// has. It is the same for two managers, and another where somebody has taken it.
func TestSubnetsOfIPv6(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	choose := func(key string) netip.Prefix {
		t.Helper()
		n, err := b.ensureNetwork(t.Context(), identity{key: key, cluster: key, namespace: "ns", name: key}, "", firstIPv4)
		if err != nil {
			t.Fatal(err)
		}
		return n.subnet6
	}
	first := choose("a")
	if local := netip.MustParsePrefix("fd00::/8"); !local.Contains(first.Addr()) || first.Bits() != 64 || first.Overlaps(choose("b")) {
		t.Errorf("subnet %s", first)
	}
	clear(e.networks)
	if again := choose("a"); again != first {
		t.Errorf("%s, and again %s", first, again)
	}
	clear(e.networks)
	e.networks["other"] = &fakeNetwork{ID: "other", EnableIPv6: true}
	e.networks["other"].IPAM.Config = []fakeSubnet{{Subnet: "10.0.0.0/24"}, {Subnet: netip.PrefixFrom(first.Addr(), 48).Masked().String()}}
	if other := choose("a"); other.Overlaps(netip.PrefixFrom(first.Addr(), 48).Masked()) {
		t.Errorf("%s overlaps what is taken", other)
	}
	clear(e.networks)
	e.networks["other"] = &fakeNetwork{ID: "other", EnableIPv6: true}
	e.networks["other"].IPAM.Config = []fakeSubnet{{Subnet: "10.0.0.0/24"}, {Subnet: "fd00::/8"}}
	if _, err := b.ensureNetwork(t.Context(), identity{key: "a", cluster: "a"}, "", firstIPv4); !reasonIs(err, ReasonNoSubnet) || len(e.networks) != 1 {
		t.Errorf("everything is taken: %v, %d networks", err, len(e.networks))
	}
}
