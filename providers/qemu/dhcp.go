// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
)

// serveDHCP serves the bridge for as long as ctx lives. The bridge comes
// with the first instance and goes with the last, whichever process makes
// them, so its coming and going is watched. Every process with this provider
// answers; all give the same answers, which they read from the leases.
func (p *Provider) serveDHCP(ctx context.Context) {
	updates := make(chan netlink.LinkUpdate)
	// A subscription lists what is there first.
	err := netlink.LinkSubscribeWithOptions(updates, ctx.Done(), netlink.LinkSubscribeOptions{ListExisting: true})
	if err != nil {
		p.cfg.log().Error("no DHCP: cannot watch interfaces", "error", err)
		return
	}
	var server *server4.Server
	serving := 0 // the bridge's index
	for update := range updates {
		attrs := update.Attrs()
		up := update.Header.Type == unix.RTM_NEWLINK && attrs.Flags&net.FlagUp != 0
		if attrs.Name != p.cfg.Bridge || up && attrs.Index == serving {
			continue
		}
		if server != nil {
			server.Close()
			server, serving = nil, 0
		}
		if up {
			addr := &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ServerPort}
			if server, err = server4.NewServer(p.cfg.Bridge, addr, p.answerDHCP); err != nil {
				p.cfg.log().Error("no DHCP", "bridge", p.cfg.Bridge, "error", err)
				continue
			}
			serving = attrs.Index
			go server.Serve()
		}
	}
	if server != nil {
		server.Close()
	}
}

func (p *Provider) answerDHCP(conn net.PacketConn, peer net.Addr, request *dhcpv4.DHCPv4) {
	ports, err := p.net.Ports()
	if err != nil {
		p.cfg.log().Error("DHCP: cannot read the leases", "error", err)
		return
	}
	answer, err := dhcpAnswer(request, ports, p.guestDNS())
	if answer != nil {
		_, err = conn.WriteTo(answer.ToBytes(), peer)
	}
	if err != nil {
		p.cfg.log().Error("DHCP: cannot answer", "mac", request.ClientHWAddr.String(), "error", err)
	}
}

// dhcpAnswer returns nil for clients that are not ours.
func dhcpAnswer(request *dhcpv4.DHCPv4, ports []localnet.Port, dns []netip.Addr) (*dhcpv4.DHCPv4, error) {
	port, i := portOf(request.ClientHWAddr, ports)
	if port == nil || request.OpCode != dhcpv4.OpcodeBootRequest {
		return nil, nil
	}
	addr, gateway := port.Addrs[i], port.Gateways[i].AsSlice()
	kind, ok := dhcpKind(request, addr.Addr())
	if !ok {
		return nil, nil
	}
	reply := []dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind),
		dhcpv4.WithYourIP(addr.Addr().AsSlice()),
		dhcpv4.WithServerIP(gateway),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway)),
		dhcpv4.WithNetmask(net.CIDRMask(addr.Bits(), 32)),
		dhcpv4.WithRouter(gateway),
		dhcpv4.WithLeaseTime(math.MaxUint32), // without end (RFC 2131, section 3.3)
		dhcpv4.WithGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(port.MTU))),
	}
	var servers []net.IP
	for _, server := range dns {
		if server.Is4() {
			servers = append(servers, server.AsSlice())
		}
	}
	if len(servers) > 0 {
		reply = append(reply, dhcpv4.WithDNS(servers...))
	}
	return dhcpv4.NewReplyFromRequest(request, reply...)
}

// dhcpKind returns the type of the reply; false if there is none to this request.
func dhcpKind(request *dhcpv4.DHCPv4, addr netip.Addr) (dhcpv4.MessageType, bool) {
	switch request.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return dhcpv4.MessageTypeOffer, true
	case dhcpv4.MessageTypeRequest:
		wanted := request.RequestedIPAddress()
		if wanted == nil || wanted.IsUnspecified() {
			wanted = request.ClientIPAddr
		}
		if wanted.Equal(addr.AsSlice()) {
			return dhcpv4.MessageTypeAck, true
		}
		return dhcpv4.MessageTypeNak, true
	}
	return 0, false
}

// portOf finds the port of a MAC, and which of its addresses is IPv4.
func portOf(mac net.HardwareAddr, ports []localnet.Port) (*localnet.Port, int) {
	for p := range ports {
		for i, addr := range ports[p].Addrs {
			if bytes.Equal(ports[p].MAC, mac) && addr.Addr().Is4() {
				return &ports[p], i
			}
		}
	}
	return nil, 0
}
