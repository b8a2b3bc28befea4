// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var compareNet = cmp.Options{
	cmp.AllowUnexported(netConfig{}, nicConfig{}, route{}),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestNetworkConfigVersion2(t *testing.T) {
	got, err := parseNetworkConfig([]byte(`
version: 2
ethernets:
  net1:
    dhcp4: true
  id0:
    match: {macaddress: "52:54:00:AA:bb:60"}
    set-name: eth0
    addresses: [10.9.0.5/24, "fd00:9::5/64", 10.9.0.6]
    mtu: 1450
    gateway6: "fd00:9::1"
    routes:
      - {to: default, via: 10.9.0.1}
      - {to: 10.9.9.1/24}
    nameservers: {addresses: [10.9.0.1], search: [x.local]}
    optional: true
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &netConfig{
		search: []string{"x.local"},
		nics: []nicConfig{{
			name:    "id0",
			mac:     net.HardwareAddr{0x52, 0x54, 0, 0xaa, 0xbb, 0x60},
			setName: "eth0",
			mtu:     1450,
			addresses: []netip.Prefix{
				netip.MustParsePrefix("10.9.0.5/24"), netip.MustParsePrefix("fd00:9::5/64"), netip.MustParsePrefix("10.9.0.6/32"),
			},
			routes: []route{
				{to: netip.MustParsePrefix("10.9.9.0/24")},
				{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr("10.9.0.1")},
				{to: netip.MustParsePrefix("::/0"), via: netip.MustParseAddr("fd00:9::1")},
			},
			dns: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
		}, {
			name:  "net1",
			dhcp4: true,
		}},
	}
	if diff := cmp.Diff(want, got, compareNet); diff != "" {
		t.Error(diff)
	}
}

func TestNetworkConfigBelowNetworkKeyAndAsJSON(t *testing.T) {
	got, err := parseNetworkConfig([]byte(`{"network":{"version":2,"ethernets":{"eth0":{"match":{"name":"ens3"},"dhcp4":true}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &netConfig{nics: []nicConfig{{name: "ens3", dhcp4: true}}}
	if diff := cmp.Diff(want, got, compareNet); diff != "" {
		t.Error(diff)
	}
}

func TestNetworkConfigNamesWhatIsWrong(t *testing.T) {
	eth := func(body string) string { return "version: 2\nethernets: {eth0: {" + body + "}}" }
	for _, c := range []struct{ text, want string }{
		{"version: 1\nconfig: []", "version 1"},
		{"version: 2", "no ethernets"},
		{"\t", "network-config"},
		{eth("addresses: [10.0.0.300/24]"), "ethernets.eth0: addresses"},
		{eth("match: {macaddress: zz}"), "match.macaddress"},
		{eth("mtu: 70000"), "mtu"},
		{eth("routes: [{to: default}]"), "needs via"},
		{eth("routes: [{to: x, via: 10.0.0.1}]"), "routes"},
		{eth("nameservers: {addresses: [dns.local]}"), "nameservers"},
	} {
		_, err := parseNetworkConfig([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.text, err, c.want)
		}
	}
}

func FuzzParseNetworkConfig(f *testing.F) {
	f.Add([]byte("version: 2\nethernets: {eth0: {dhcp4: true, routes: [{to: default, via: 1.2.3.4}]}}"))
	f.Add([]byte("network: {network: {version: 2}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parseNetworkConfig(data)
		if err == nil && len(cfg.nics) == 0 {
			t.Error("accepted a configuration without interfaces")
		}
		for _, n := range nicsOf(cfg) {
			for _, r := range n.routes {
				if !r.to.IsValid() {
					t.Errorf("route without destination: %+v", r)
				}
			}
		}
	})
}

func nicsOf(cfg *netConfig) []nicConfig {
	if cfg == nil {
		return nil
	}
	return cfg.nics
}

func TestMetaData(t *testing.T) {
	m, err := parseMetaData([]byte("instance-id: i-1\nlocal-hostname: pod-a\n"))
	if err != nil || m.LocalHostname != "pod-a" || m.InstanceID != "i-1" {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err := parseMetaData(nil); err != nil || m.LocalHostname != "" {
		t.Errorf("empty meta-data: got %+v, %v", m, err)
	}
}

func TestCmdlineNetwork(t *testing.T) {
	nic, err := cmdlineNIC(parseCmdline("quiet outrigger.ip=10.0.0.5/24 outrigger.gw=10.0.0.1\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &nicConfig{
		addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")},
		routes:    []route{{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr("10.0.0.1")}},
	}
	if diff := cmp.Diff(want, nic, compareNet); diff != "" {
		t.Error(diff)
	}
	if nic, err := cmdlineNIC(parseCmdline("quiet")); nic != nil || err != nil {
		t.Errorf("without arguments: got %+v, %v", nic, err)
	}
	for _, bad := range []string{"outrigger.ip=10.0.0.5", "outrigger.ip=10.0.0.5/24 outrigger.gw=x"} {
		if _, err := cmdlineNIC(parseCmdline(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
