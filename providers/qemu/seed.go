// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/provider"
)

// guestInterface is the name of the VM's interface.
const guestInterface = "eth0"

// networkOf returns a guest's network configuration. With DHCP it asks for the
// IPv4 part of them; there is no DHCPv6.
func networkOf(r *record, dhcp bool, dns []netip.Addr) nocloud.Network {
	eth := nocloud.Ethernet{Match: nocloud.Match{MACAddress: r.MAC}, SetName: guestInterface, MTU: r.MTU, DHCP4: dhcp}
	for i, addr := range r.Addrs {
		if dhcp && addr.Addr().Is4() {
			continue
		}
		eth.Addresses = append(eth.Addresses, addr.String())
		eth.Routes = append(eth.Routes, nocloud.Route{To: "default", Via: r.Gateways[i].String()})
	}
	for _, addr := range dns {
		if eth.Nameservers == nil {
			eth.Nameservers = &nocloud.Nameservers{}
		}
		eth.Nameservers.Addresses = append(eth.Nameservers.Addresses, addr.String())
	}
	return nocloud.Network{Version: 2, Ethernets: map[string]nocloud.Ethernet{guestInterface: eth}}
}

// seed returns the content of a NoCloud seed disk (cloud-init, data source NoCloud).
func seed(r *record, userData string, dhcp bool, dns []netip.Addr) ([]byte, error) {
	s := nocloud.Seed{InstanceID: r.ID, Hostname: r.ID, UserData: userData, Network: networkOf(r, dhcp, dns)}
	if r.Template == "" {
		return s.Image()
	}
	s.RandomSeed, s.Time = make([]byte, randomSeedSize), time.Now()
	rand.Read(s.RandomSeed)
	image, err := s.Image()
	if len(image) > seedSize {
		return nil, fmt.Errorf("%w: %d bytes of user-data do not fit on a seed disk of %d", provider.ErrInvalidArgument, len(userData), seedSize)
	}
	return append(image, make([]byte, seedSize-len(image))...), err
}

const (
	// seedSize is that of a template's seed disk, and so of those of all VMs that are
	// restored from it: the largest user-data (cloudinit.MaxSize) fits.
	seedSize = 2 << 20
	// randomSeedSize is twice the key of the guest's kernel.
	randomSeedSize = 64
)
