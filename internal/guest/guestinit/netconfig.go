// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"go.yaml.in/yaml/v2"
)

// networkDocument is cloud-init's network configuration version 2, the part
// that a pod VM uses (cloud-init reference, network-config-format-v2).
type networkDocument struct {
	Version   int                         `yaml:"version"`
	Ethernets map[string]ethernetDocument `yaml:"ethernets"`
	// Network is the same document one level down, as netplan writes it.
	Network *networkDocument `yaml:"network"`
}

type ethernetDocument struct {
	Match struct {
		MACAddress string `yaml:"macaddress"`
		Name       string `yaml:"name"`
	} `yaml:"match"`
	SetName   string   `yaml:"set-name"`
	DHCP4     bool     `yaml:"dhcp4"`
	Addresses []string `yaml:"addresses"`
	Gateway4  string   `yaml:"gateway4"`
	Gateway6  string   `yaml:"gateway6"`
	MTU       int      `yaml:"mtu"`
	Routes    []struct {
		To  string `yaml:"to"`
		Via string `yaml:"via"`
	} `yaml:"routes"`
	Nameservers struct {
		Search    []string `yaml:"search"`
		Addresses []string `yaml:"addresses"`
	} `yaml:"nameservers"`
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
	if doc.Network != nil {
		doc = *doc.Network
	}
	if doc.Version != 2 {
		return nil, fmt.Errorf("network-config: version %d, only 2 is known", doc.Version)
	}
	names := make([]string, 0, len(doc.Ethernets))
	for name := range doc.Ethernets {
		names = append(names, name)
	}
	slices.Sort(names)
	var cfg netConfig
	for _, name := range names {
		e := doc.Ethernets[name]
		nic, err := e.config(name)
		if err != nil {
			return nil, fmt.Errorf("network-config: ethernets.%s: %w", name, err)
		}
		cfg.nics = append(cfg.nics, *nic)
		cfg.search = append(cfg.search, e.Nameservers.Search...)
	}
	if len(cfg.nics) == 0 {
		return nil, errors.New("network-config: no ethernets")
	}
	return &cfg, nil
}

func (e *ethernetDocument) config(key string) (*nicConfig, error) {
	c := &nicConfig{name: key, setName: e.SetName, dhcp4: e.DHCP4, mtu: e.MTU}
	if e.Match.Name != "" {
		c.name = e.Match.Name
	}
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
	if c.dns, err = parseAll(e.Nameservers.Addresses, netip.ParseAddr); err != nil {
		return nil, fmt.Errorf("nameservers.addresses: %w", err)
	}
	if c.routes, err = e.routes(); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return c, nil
}

func (e *ethernetDocument) routes() ([]route, error) {
	var list []route
	for _, r := range e.Routes {
		parsed, err := parseRoute(r.To, r.Via)
		if err != nil {
			return nil, err
		}
		list = append(list, parsed)
	}
	for _, gw := range []string{e.Gateway4, e.Gateway6} {
		if gw == "" {
			continue
		}
		parsed, err := parseRoute("default", gw)
		if err != nil {
			return nil, err
		}
		list = append(list, parsed)
	}
	// A gateway may itself be reached by a route without one.
	slices.SortStableFunc(list, func(a, b route) int {
		return boolOrder(a.via.IsValid()) - boolOrder(b.via.IsValid())
	})
	return list, nil
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

func parseRoute(to, via string) (route, error) {
	var r route
	var err error
	if via != "" {
		if r.via, err = netip.ParseAddr(via); err != nil {
			return r, err
		}
	}
	if to == "default" {
		if !r.via.IsValid() {
			return r, errors.New("a default route needs via")
		}
		r.to = defaultPrefix(r.via)
		return r, nil
	}
	r.to, err = parseAddress(to)
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

func parseAll[T any](texts []string, parse func(string) (T, error)) ([]T, error) {
	var list []T
	for _, t := range texts {
		v, err := parse(t)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// metaData is what the guest uses of NoCloud's meta-data.
type metaData struct {
	LocalHostname string `yaml:"local-hostname"`
	InstanceID    string `yaml:"instance-id"`
	// RandomSeed is base64, as in cloud-init's module seed_random.
	RandomSeed string `yaml:"random_seed"`
	// Time is as in RFC 3339.
	Time string `yaml:"outrigger-time"`
}

func parseMetaData(data []byte) (metaData, error) {
	var m metaData
	if err := yaml.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("meta-data: %w", err)
	}
	return m, nil
}
