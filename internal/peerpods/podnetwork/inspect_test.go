// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func (n *testNS) inspect(opts InspectOptions) (cfg *Config, err error) {
	err = n.do(func() (err error) {
		cfg, err = Inspect(opts)
		return err
	})
	return cfg, err
}

func sortRoutes(a, b Route) bool { return a.Dst < b.Dst }

func TestInspectCalico(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: calico})
	want := &Config{
		PodIP:        netip.PrefixFrom(pod.ip4, 32),
		PodIPs:       []netip.Prefix{netip.PrefixFrom(pod.ip4, 32), netip.PrefixFrom(pod.ip6, 128)},
		PodHwAddr:    strings.TrimSpace(pod.ns.run("", "sed", "-n", "s/.*ether \\([^ ]*\\).*/\\1/p", pod.saveLink())),
		Interface:    "eth0",
		WorkerNodeIP: netip.MustParsePrefix("172.31.1.1/24"),
		TunnelType:   "vxlan",
		Routes: []Route{
			{Dst: "0.0.0.0/0", GW: "169.254.1.1", Dev: "eth0", Protocol: "boot"},
			{Dst: "169.254.1.1/32", Dev: "eth0", Protocol: "boot", Scope: "link"},
			{Dst: "::/0", GW: "fe80::ecee:eeff:feee:eeee", Dev: "eth0", Protocol: "boot"},
			{Dst: pod.ip6.String() + "/128", Dev: "eth0", Protocol: "kernel"},
		},
		Neighbors:   []Neighbor{{IP: "169.254.1.1", HwAddr: "ee:ee:ee:ee:ee:ee", Dev: "eth0", State: "permanent"}},
		MTU:         1500,
		UnderlayMTU: 1500,
		SourceCheck: true,
		VXLANID:     pod.cfg.VXLANID,
	}
	opts := []cmp.Option{cmpopts.EquateComparable(netip.Prefix{}), cmpopts.SortSlices(sortRoutes)}
	if diff := cmp.Diff(want, pod.cfg, opts...); diff != "" {
		t.Error(diff)
	}
}

// saveLink writes what ip says of the pod's interface to a file.
func (p *labPod) saveLink() string {
	p.lab.t.Helper()
	path := p.lab.t.(*testing.T).TempDir() + "/link"
	if err := os.WriteFile(path, []byte(p.ns.run("", "ip", "link", "show", "eth0")), 0o600); err != nil {
		p.lab.t.Fatal(err)
	}
	return path
}

func TestInspectChoosesNodeAddress(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	l.node.ip("route add default via 192.0.2.2")
	for _, c := range []struct {
		name      string
		opts      InspectOptions
		want      string
		dedicated bool
	}{
		{"default route", InspectOptions{}, "192.0.2.1/24", false},
		{"its interface named", InspectOptions{HostInterface: "out0"}, "192.0.2.1/24", false},
		{"another interface", InspectOptions{HostInterface: "vm1"}, "172.31.1.1/24", true},
		{"the provider's", InspectOptions{HostInterface: "out0", NodeAddress: netip.MustParseAddr("fd31:1::1")}, "fd31:1::1/64", false},
	} {
		c.opts.Netns = pod.ns.path()
		cfg, err := l.node.inspect(c.opts)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if cfg.WorkerNodeIP.String() != c.want || cfg.Dedicated != c.dedicated {
			t.Errorf("%s: got %s, dedicated %v", c.name, cfg.WorkerNodeIP, cfg.Dedicated)
		}
	}
}

// TestInspectIPv6OnlyNode: upstream panics here.
func TestInspectIPv6OnlyNode(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	l.node.run("", "ip", "-4", "addr", "flush", "dev", "out0")
	l.node.ip("route add default via fd99::2")
	cfg, err := l.node.inspect(InspectOptions{Netns: pod.ns.path()})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.WorkerNodeIP.String(); got != "fd99::1/64" {
		t.Errorf("got %s", got)
	}
}

// TestInspectBeforeTheInterface: a provider's bridge may come with its first
// VM. Its address is known anyway, its MTU is not.
func TestInspectBeforeTheInterface(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	cfg, err := l.node.inspect(InspectOptions{Netns: pod.ns.path(), NodeAddress: netip.MustParseAddr("203.0.113.9")})
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.WorkerNodeIP.String(); got != "203.0.113.9/32" || cfg.UnderlayMTU != 0 {
		t.Errorf("got %s, underlay MTU %d", got, cfg.UnderlayMTU)
	}
}

func TestInspectErrors(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	empty, two, addressless := newTestNS(t), newTestNS(t), newTestNS(t)
	two.ip("link add a0 type veth peer name b0", "addr add 10.0.0.1/24 dev a0", "addr add 10.0.1.1/24 dev b0", "link set a0 up", "link set b0 up")
	addressless.ip("link add a0 type veth peer name b0", "link set a0 up", "link set b0 up", "route add default dev a0")
	node := netip.MustParseAddr("172.31.1.1")
	l.node.ip("link add bare type veth peer name bare1")
	for want, opts := range map[string]InspectOptions{
		"no such network namespace":      {Netns: "/nowhere", NodeAddress: node},
		"there is no default route; nam": {Netns: pod.ns.path()},
		"no such interface":              {Netns: pod.ns.path(), HostInterface: "eth7"},
		"interface bare has no IPv4":     {Netns: pod.ns.path(), HostInterface: "bare"},
		"node's own namespace":           {Netns: l.node.path(), NodeAddress: node},
		"and no interface with":          {Netns: empty.path(), NodeAddress: node},
		"primary one is unknown":         {Netns: two.path(), NodeAddress: node},
		"interface a0 has no IPv4":       {Netns: addressless.path(), NodeAddress: node},
	} {
		if _, err := l.node.inspect(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := l.node.inspect(InspectOptions{Netns: "/nowhere"}); !errors.Is(err, ErrNoNetns) {
		t.Errorf("got %v, want ErrNoNetns", err)
	}
}

func TestInspectPodSubnets(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: calico})
	cfg, err := l.node.inspect(InspectOptions{
		Netns: pod.ns.path(), NodeAddress: netip.MustParseAddr("172.31.1.1"), ExternalViaPodVM: true,
		PodSubnets: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd44::/48")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Route{
		{Dst: "10.244.0.0/16", GW: "169.254.1.1", Dev: "eth0", Protocol: "static"},
		{Dst: "fd44::/48", GW: "fe80::ecee:eeff:feee:eeee", Dev: "eth0", Protocol: "static"},
	} {
		if !slices.Contains(cfg.Routes, want) {
			t.Errorf("%v lacks %v", cfg.Routes, want)
		}
	}
	if !cfg.ExternalNetViaPodVM {
		t.Error("external-net-via-pod-vm is not set")
	}
}

// TestPoolAfterRestart: a new process reserves what its journal names and
// never hands out a VNI of a running tunnel, also without the journal where it
// can see the tunnel.
func TestPoolAfterRestart(t *testing.T) {
	const least = maxVNI - 4 // five are there
	l := newLab(t)
	first := newPool(t, least)
	free := map[uint32]bool{least: true, least + 1: true, least + 2: true, least + 3: true, least + 4: true}
	var pods []*labPod
	for range 3 {
		pod := l.addPod(podOptions{attach: onBridge})
		vni := acquire(t, first)
		delete(free, vni)
		pod.cfg.VXLANID = int(vni)
		if err := pod.setupNode(); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	foreign := acquire(t, first)
	delete(free, foreign)
	l.node.ip(fmt.Sprintf("link add flannel.1 type vxlan id %d dstport 8472", foreign))
	restarted := newPool(t, least)
	for _, pod := range pods {
		if err := restarted.Reserve(uint32(pod.cfg.VXLANID)); err != nil {
			t.Fatal(err)
		}
	}
	var got uint32
	l.node.must(func() (err error) { got, err = restarted.Acquire(); return err })
	if !free[got] {
		t.Errorf("got %d, want one of %v", got, free)
	}
}
