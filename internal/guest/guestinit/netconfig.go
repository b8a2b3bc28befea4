// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v2"

	"github.com/outrigger/outrigger/internal/nocloud"
)

// networkDocument is cloud-init's network configuration version 2, the part
// that a pod VM uses.
type networkDocument struct {
	nocloud.Network `yaml:",inline"`
	// Inner is the same document one level down, as netplan writes it.
	Inner *nocloud.Network `yaml:"network"`
}

// netConfig is a parsed network-config.
type netConfig struct {
	nics   []nicConfig
	search []string
}

// parseNetworkConfig reads version 2. Keys it does not know are ignored.
func parseNetworkConfig(data []byte) (*netConfig, error) {
	var doc networkDocument
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("network-config: %w", err)
	}
	network := doc.Network
	if doc.Inner != nil {
		network = *doc.Inner
	}
	if network.Version != 2 {
		return nil, fmt.Errorf("network-config: version %d, only 2 is known", network.Version)
	}
	var cfg netConfig
	for _, name := range slices.Sorted(maps.Keys(network.Ethernets)) {
		e := network.Ethernets[name]
		nic, err := newNIC(name, e)
		if err != nil {
			return nil, fmt.Errorf("network-config: ethernets.%s: %w", name, err)
		}
		cfg.nics = append(cfg.nics, *nic)
		if e.Nameservers != nil {
			cfg.search = append(cfg.search, e.Nameservers.Search...)
		}
	}
	if len(cfg.nics) == 0 {
		return nil, errors.New("network-config: no ethernets")
	}
	return &cfg, nil
}

func newNIC(key string, e nocloud.Ethernet) (*nicConfig, error) {
	c := &nicConfig{name: cmp.Or(e.Match.Name, key), setName: e.SetName, dhcp4: e.DHCP4, mtu: e.MTU}
	if c.mtu < 0 || c.mtu > 65535 {
		return nil, fmt.Errorf("mtu: %d is out of range", c.mtu)
	}
	var err error
	if m := e.Match.MACAddress; m != "" {
		if c.mac, err = net.ParseMAC(m); err != nil {
			return nil, fmt.Errorf("match.macaddress: %w", err)
		}
	}
	if c.addresses, err = parseAll(e.Addresses, parseAddress); err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	if e.Nameservers != nil {
		if c.dns, err = parseAll(e.Nameservers.Addresses, netip.ParseAddr); err != nil {
			return nil, fmt.Errorf("nameservers.addresses: %w", err)
		}
	}
	routes := e.Routes
	for _, gateway := range []string{e.Gateway4, e.Gateway6} {
		if gateway != "" {
			routes = append(routes, nocloud.Route{To: "default", Via: gateway})
		}
	}
	if c.routes, err = parseAll(routes, parseRoute); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	// A gateway may itself be reached by a route without one.
	slices.SortStableFunc(c.routes, func(a, b route) int { return a.via.BitLen() - b.via.BitLen() })
	return c, nil
}

func parseRoute(in nocloud.Route) (r route, err error) {
	if in.Via != "" {
		if r.via, err = netip.ParseAddr(in.Via); err != nil {
			return r, err
		}
	}
	if in.To == "default" {
		if !r.via.IsValid() {
			return r, errors.New("a default route needs via")
		}
		r.to = defaultPrefix(r.via)
		return r, nil
	}
	r.to, err = parseAddress(in.To)
	r.to = r.to.Masked()
	return r, err
}

// parseAddress takes ADDR/LEN, or ADDR alone for a single host.
func parseAddress(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(s)
}

func parseAll[In, Out any](all []In, parse func(In) (Out, error)) ([]Out, error) {
	var list []Out
	for _, t := range all {
		v, err := parse(t)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func parseMetaData(data []byte) (nocloud.MetaData, error) {
	var m nocloud.MetaData
	if err := yaml.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("meta-data: %w", err)
	}
	return m, nil
}
