// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

func TestLeaseHasAddressRouterDNSAndMTU(t *testing.T) {
	ack, err := dhcpv4.New(
		dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
		dhcpv4.WithRouter(net.IPv4(10, 0, 2, 2), net.IPv4(10, 0, 2, 3)),
		dhcpv4.WithDNS(net.IPv4(10, 0, 2, 3)),
		dhcpv4.WithLeaseTime(600),
		dhcpv4.WithOption(dhcpv4.OptDomainName("x.local")),
		dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, []byte{0x05, 0xaa}),
	)
	if err != nil {
		t.Fatal(err)
	}
	got := newLease(&nclient4.Lease{ACK: ack})
	want := nicConfig{
		addresses: []netip.Prefix{netip.MustParsePrefix("10.0.2.15/24")},
		routes:    []route{{to: netip.MustParsePrefix("0.0.0.0/0"), via: netip.MustParseAddr("10.0.2.2")}},
		dns:       []netip.Addr{netip.MustParseAddr("10.0.2.3")},
		mtu:       1450,
	}
	if diff := cmp.Diff(want, got.nicConfig, compareNet); diff != "" {
		t.Error(diff)
	}
	if got.duration != 10*time.Minute || !cmp.Equal(got.search, []string{"x.local"}) {
		t.Errorf("duration %v, search %v", got.duration, got.search)
	}
}

func TestLeaseWithoutOptions(t *testing.T) {
	ack, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)))
	if err != nil {
		t.Fatal(err)
	}
	got := newLease(&nclient4.Lease{ACK: ack})
	if len(got.routes) != 0 || len(got.dns) != 0 || got.mtu != 0 || got.duration != leaseDefault {
		t.Errorf("got %+v", got)
	}
}
