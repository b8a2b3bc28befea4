// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"net/netip"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

func init() { provider.AddCloudProvider(Name, Manager()) }

// Manager reads the provider's configuration.
func Manager() *config.Manager[Config] {
	return config.New(Name, func(cfg Config) (provider.Provider, error) {
		p, err := New(cfg)
		if err != nil {
			return nil, err // not p: a nil *Provider is not a nil Provider
		}
		return p, nil
	})
}

// none is the value with which a user turns such a prefix off.
const none = "none"

// Prefix is a network, or none.
type Prefix struct{ netip.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Prefix) UnmarshalText(text []byte) error {
	if string(text) == none {
		*p = Prefix{}
		return nil
	}
	return p.Prefix.UnmarshalText(text)
}

// Addrs are addresses with commas between them.
type Addrs []netip.Addr

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Addrs) UnmarshalText(text []byte) error {
	*a = nil
	for part := range strings.SplitSeq(string(text), ",") {
		addr, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*a = append(*a, addr)
	}
	return nil
}
