// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// network describes a libvirt network.
type network struct {
	name   string
	active bool
	// routed networks lead to the outside.
	routed bool
	// resolves reports whether the gateway is a name server.
	resolves bool
	mtu      int
	// subnets are the subnets with IPv4 and DHCP.
	subnets []subnet
}

type subnet struct {
	// index is the position of the subnet among the <ip> elements.
	index   int
	prefix  netip.Prefix
	gateway netip.Addr
	ranges  [][2]netip.Addr
	// hosts holds the reserved addresses by MAC address.
	hosts map[string]netip.Addr
}

// networks returns the networks of an instance's interfaces, in order. The tunnel uses the last.
func (p *Provider) networks() []string {
	if p.cfg.TunnelNetwork != "" {
		return []string{p.cfg.Network, p.cfg.TunnelNetwork}
	}
	return []string{p.cfg.Network}
}

// networkTitle returns the setting that names a network, for messages.
func (p *Provider) networkTitle(name string) string {
	if name == p.cfg.Network {
		return "-network-name (LIBVIRT_NET)"
	}
	return "-libvirt-tunnel-network (LIBVIRT_TUNNEL_NET)"
}

func (p *Provider) networkNamed(ctx context.Context, name string) (*network, error) {
	info, err := p.hv.network(ctx, name)
	if isCode(err, lv.ErrNoNetwork) {
		return nil, fmt.Errorf("%w: %s: %w; make it with virsh net-define", provider.ErrNotFound, p.networkTitle(name), err)
	}
	if err != nil {
		return nil, err
	}
	return parseNetwork(name, info)
}

// activeNetwork returns a network that VMs can be attached to.
func (p *Provider) activeNetwork(ctx context.Context, name string) (*network, error) {
	n, err := p.networkNamed(ctx, name)
	if err == nil && !n.active {
		return nil, fmt.Errorf("%w: %s: network %s is not active; start it with virsh net-start %s", provider.ErrUnavailable, p.networkTitle(name), name, name)
	}
	return n, err
}

func parseNetwork(name string, info networkInfo) (*network, error) {
	var doc libvirtxml.Network
	if err := doc.Unmarshal(info.xml); err != nil {
		return nil, fmt.Errorf("network %s: %w", name, err)
	}
	n := &network{name: name, active: info.active, routed: doc.Forward != nil}
	n.resolves = doc.DNS == nil || doc.DNS.Enable != "no"
	if doc.MTU != nil {
		n.mtu = int(doc.MTU.Size)
	}
	for i, ip := range doc.IPs {
		if s, ok := parseSubnet(ip); ok {
			s.index = i
			n.subnets = append(n.subnets, s)
		}
	}
	return n, nil
}

// parseSubnet returns false for a subnet without IPv4 or DHCP.
func parseSubnet(ip libvirtxml.NetworkIP) (s subnet, ok bool) {
	gateway, err := netip.ParseAddr(ip.Address)
	if err != nil || !gateway.Is4() || ip.DHCP == nil {
		return s, false
	}
	bits := int(ip.Prefix)
	if mask := net.ParseIP(ip.Netmask); mask != nil {
		bits, _ = net.IPMask(mask.To4()).Size()
	}
	if s.prefix, err = gateway.Prefix(bits); err != nil || bits == 0 {
		return s, false
	}
	s.gateway, s.hosts = gateway, map[string]netip.Addr{}
	for _, r := range ip.DHCP.Ranges {
		first, firstErr := netip.ParseAddr(r.Start)
		last, lastErr := netip.ParseAddr(r.End)
		if firstErr == nil && lastErr == nil {
			s.ranges = append(s.ranges, [2]netip.Addr{first, last})
		}
	}
	for _, host := range ip.DHCP.Hosts {
		if addr, err := netip.ParseAddr(host.IP); err == nil {
			s.hosts[strings.ToLower(host.MAC)] = addr
		}
	}
	return s, len(s.ranges) > 0
}

// reservation is an address that a network reserves for an interface.
type reservation struct {
	addr    netip.Addr
	network *network
	subnet  subnet
}

// reserveTries limits how often a reservation is tried with another address because
// somebody else was faster.
const reserveTries = 50

// reserve reserves an address for a MAC address, so that it is known before the guest
// boots. dnsmasq also hands out a reserved address at once, and others only after it has
// pinged them for three seconds. The daemon refuses an address that is taken, so several
// processes can do this at once. It returns nil if the network cannot have reservations.
func (p *Provider) reserve(ctx context.Context, name, mac string) (*reservation, error) {
	for range reserveTries {
		n, err := p.activeNetwork(ctx, name)
		if err != nil {
			return nil, err
		}
		if held := n.reservation(mac); held != nil {
			return held, nil
		}
		free, err := p.choose(ctx, n, mac)
		if free == nil || err != nil {
			return nil, err
		}
		err = p.hv.updateHost(ctx, name, lv.NetworkUpdateCommandAddLast, free.subnet.index, hostElement(mac, free.addr))
		switch {
		case err == nil:
			return free, nil
		case unsupported(err):
			return nil, nil
		case !isCode(err, lv.ErrOperationInvalid):
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: network %s: others took every address that was about to be reserved", provider.ErrUnavailable, name)
}

// hostElement returns the XML of a reservation. Its lease is short, for guests that use
// DHCP all the same: after the VM, the address is blocked until the lease ends.
func hostElement(mac string, addr netip.Addr) string {
	return fmt.Sprintf("<host mac='%s' ip='%s'><lease expiry='2' unit='minutes'/></host>", mac, addr)
}

func (n *network) reservation(mac string) *reservation {
	for _, s := range n.subnets {
		if addr, ok := s.hosts[mac]; ok {
			return &reservation{addr, n, s}
		}
	}
	return nil
}

// choose returns a free address. The search begins at one that depends on the MAC, so that
// simultaneous creations do not choose the same address.
func (p *Provider) choose(ctx context.Context, n *network, mac string) (*reservation, error) {
	if len(n.subnets) == 0 {
		return nil, nil
	}
	taken := map[netip.Addr]bool{}
	leases, err := p.hv.leases(ctx, n.name)
	if err != nil && !unsupported(err) {
		return nil, err
	}
	for _, l := range leases {
		if addr, err := netip.ParseAddr(l.ip); err == nil && !strings.EqualFold(l.mac, mac) {
			taken[addr] = true
		}
	}
	hash := fnv.New64a()
	hash.Write([]byte(mac))
	for _, s := range n.subnets {
		if addr, ok := s.free(taken, hash.Sum64()); ok {
			return &reservation{addr, n, s}, nil
		}
	}
	return nil, fmt.Errorf("%w: every address of network %s is taken: widen its DHCP range", provider.ErrCapacity, n.name)
}

func (s subnet) free(taken map[netip.Addr]bool, seed uint64) (netip.Addr, bool) {
	for _, addr := range s.hosts {
		taken[addr] = true
	}
	taken[s.gateway] = true
	var all []netip.Addr
	for _, r := range s.ranges {
		for addr := r[0]; addr.IsValid() && addr.Compare(r[1]) <= 0 && len(all) < 1<<16; addr = addr.Next() {
			all = append(all, addr)
		}
	}
	for i := range all {
		addr := all[(seed+uint64(i))%uint64(len(all))]
		if !taken[addr] {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// release removes the reservation of a MAC, if there is one.
func (p *Provider) release(ctx context.Context, name, mac string) error {
	n, err := p.networkNamed(ctx, name)
	if isCode(err, lv.ErrNoNetwork) {
		return nil
	}
	if err != nil {
		return err
	}
	held := n.reservation(mac)
	if held == nil {
		return nil
	}
	err = p.hv.updateHost(ctx, name, lv.NetworkUpdateCommandDelete, held.subnet.index, fmt.Sprintf("<host mac='%s' ip='%s'/>", mac, held.addr))
	if isCode(err, lv.ErrOperationInvalid) {
		// Another process may have removed it.
		if n, again := p.networkNamed(ctx, name); again == nil && n.reservation(mac) == nil {
			return nil
		}
	}
	return err
}

// networkConfig returns a guest's network configuration: its reserved addresses, or DHCP.
func networkConfig(id string, held []*reservation) nocloud.Network {
	config := nocloud.Network{Version: 2, Ethernets: map[string]nocloud.Ethernet{}}
	for i, r := range held {
		name := fmt.Sprintf("eth%d", i)
		eth := nocloud.Ethernet{Match: nocloud.Match{MACAddress: macOf(id, i)}, SetName: name, DHCP4: r == nil}
		if r != nil {
			eth.MTU = r.network.mtu
			eth.Addresses = []string{netip.PrefixFrom(r.addr, r.subnet.prefix.Bits()).String()}
		}
		// The second interface is for the tunnel alone.
		if r != nil && i == 0 && r.network.routed {
			eth.Routes = []nocloud.Route{{To: "default", Via: r.subnet.gateway.String()}}
		}
		if r != nil && i == 0 && r.network.resolves {
			eth.Nameservers = &nocloud.Nameservers{Addresses: []string{r.subnet.gateway.String()}}
		}
		config.Ethernets[name] = eth
	}
	return config
}

const (
	pollFirst = 100 * time.Millisecond
	pollLast  = time.Second
)

// awaitAddresses returns an address for each interface: the reserved one, or the one of
// the DHCP lease or of the guest's agent.
func (p *Provider) awaitAddresses(ctx context.Context, id string, held []*reservation) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.AddressWait, fmt.Errorf("the VM got no address within %v (-libvirt-address-wait, LIBVIRT_ADDRESS_WAIT): does its network have DHCP, or its image the QEMU guest agent?", p.cfg.AddressWait))
	defer cancel()
	for wait := pollFirst; ; wait = min(2*wait, pollLast) {
		addrs, missing := p.addresses(ctx, id, held)
		if missing == nil {
			return addrs, nil
		}
		if isCode(missing, lv.ErrNoDomain) {
			return nil, missing
		}
		if state, err := p.hv.state(ctx, id); err == nil && (state == lv.DomainShutoff || state == lv.DomainCrashed) {
			return nil, fmt.Errorf("the VM ended before it had an address; its console may say why")
		}
		if err := poll.Sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
		}
	}
}

var errNoAddress = fmt.Errorf("%w: no address yet", provider.ErrUnavailable)

func (p *Provider) addresses(ctx context.Context, id string, held []*reservation) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for i, r := range held {
		if r != nil {
			addrs = append(addrs, r.addr)
			continue
		}
		addr, err := p.address(ctx, id, macOf(id, i))
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// address asks the network's DHCP server and then the guest's agent.
func (p *Provider) address(ctx context.Context, id, mac string) (netip.Addr, error) {
	missing := errNoAddress
	for _, source := range []lv.DomainInterfaceAddressesSource{lv.DomainInterfaceAddressesSrcLease, lv.DomainInterfaceAddressesSrcAgent} {
		list, err := p.hv.interfaces(ctx, id, source)
		if isCode(err, lv.ErrNoDomain) {
			missing = err
		}
		for _, nic := range list {
			if !strings.EqualFold(optional(nic.Hwaddr), mac) {
				continue
			}
			for _, a := range nic.Addrs {
				if addr, err := netip.ParseAddr(a.Addr); err == nil && addr.IsGlobalUnicast() {
					return addr, nil
				}
			}
		}
	}
	return netip.Addr{}, missing
}
