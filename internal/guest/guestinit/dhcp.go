// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Times of the DHCP client. RFC 2131 4.1 starts retransmission at 4 s, which
// is too slow on a link that is up within milliseconds.
const (
	dhcpTimeout  = time.Second
	dhcpRetries  = 5
	dhcpRetry    = 3 * time.Second
	minRenewal   = 30 * time.Second
	leaseDefault = time.Hour
)

// dhcpLease is what the server gave, in our terms.
type dhcpLease struct {
	nicConfig
	duration time.Duration
	search   []string
	raw      *nclient4.Lease
}

// runDHCP gets a lease and renews it for ever. The first lease, or each
// failure until there is one, is reported to result.
func runDHCP(ctx context.Context, link netlink.Link, result func(*dhcpLease, error)) {
	var last *dhcpLease
	for {
		lease, err := requestLease(ctx, link, last)
		if err == nil {
			err = lease.apply(link)
		}
		if last == nil || err != nil {
			result(lease, err)
		}
		wait := dhcpRetry
		if err == nil {
			last = lease
			wait = max(lease.duration/2, minRenewal)
		}
		if poll.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// requestLease renews the last lease or, without one, asks any server.
func requestLease(ctx context.Context, link netlink.Link, last *dhcpLease) (*dhcpLease, error) {
	name := link.Attrs().Name
	client, err := nclient4.New(name, nclient4.WithTimeout(dhcpTimeout), nclient4.WithRetry(dhcpRetries))
	if err != nil {
		return nil, fmt.Errorf("DHCP on %s: %w", name, err)
	}
	defer client.Close()
	if last != nil {
		if raw, err := client.Renew(ctx, last.raw); err == nil {
			return newLease(raw), nil
		}
	}
	raw, err := client.Request(ctx, dhcpv4.WithRequestedOptions(
		dhcpv4.OptionInterfaceMTU, dhcpv4.OptionDomainName, dhcpv4.OptionDNSDomainSearchList))
	if err != nil {
		return nil, fmt.Errorf("DHCP on %s: no answer: %w", name, err)
	}
	return newLease(raw), nil
}

func newLease(raw *nclient4.Lease) *dhcpLease {
	ack := raw.ACK
	l := &dhcpLease{raw: raw, duration: ack.IPAddressLeaseTime(leaseDefault)}
	if ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4()); ok {
		bits, _ := ack.SubnetMask().Size()
		l.addresses = []netip.Prefix{netip.PrefixFrom(ip, bits)}
	}
	for _, gw := range addrs(ack.Router())[:min(1, len(ack.Router()))] {
		l.routes = append(l.routes, route{to: defaultPrefix(gw), via: gw})
	}
	l.dns = addrs(ack.DNS())
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil {
		l.mtu = int(mtu)
	}
	if d := ack.DomainName(); d != "" {
		l.search = []string{d}
	}
	return l
}

func (l *dhcpLease) apply(link netlink.Link) error {
	if err := l.nicConfig.apply(link); err != nil {
		return err
	}
	return writeResolvConf(l.dns, l.search)
}

func addrs(ips []net.IP) []netip.Addr {
	var list []netip.Addr
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip); ok {
			list = append(list, a.Unmap())
		}
	}
	return list
}
