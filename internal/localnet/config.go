// SPDX-License-Identifier: Apache-2.0

// Package localnet is a small network of this machine's own: a bridge, an
// address for each port, and a way out by NAT: forwarding is turned on, and
// what leaves by another interface gets that interface's address. Ports are
// tap devices for VMs or network namespaces for pods.
//
// Nothing exists before the first port is attached, and nothing is left when
// the last one is detached: no interface, no nft table, no changed sysctl.
// Several processes may use one network at a time and any of them may be killed
// at any instant; the next call of any of them mends what is partly created.
package localnet

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
)

const (
	// defaultMTU is that of Ethernet (RFC 894).
	defaultMTU = 1500
	// minMTU is what IPv6 demands of every link (RFC 8200, section 5).
	minMTU = 1280
	// maxMTU is the largest that a bridge takes.
	maxMTU = 65535

	defaultRunDir = "/run/outrigger"
)

// Config describes a network. Processes that share one must agree on it.
type Config struct {
	// Bridge is the bridge's interface name, at most 15 characters.
	Bridge string
	// Subnets are the network's prefixes, at most one for each of IPv4 and
	// IPv6; the first address of each is the bridge's own. Where the kernel
	// has no IPv6, an IPv6 prefix beside an IPv4 one is left out.
	Subnets []netip.Prefix
	// MTU of bridge and ports in bytes. 0 is that of the interface with the
	// default route, at most 1500.
	MTU int
	// StateDir holds the leases. It is made when needed and removed when empty.
	StateDir string
	// RunDir holds what must not outlive a boot: who has turned on forwarding,
	// and how it was before. All networks of a machine must use the same;
	// empty is /run/outrigger.
	RunDir string
}

// interfaceName is what Linux takes as an interface name, less the characters
// that mean something in sysctl paths and shells.
var interfaceName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,14}$`)

func (c Config) validate() error {
	var errs []error
	if !interfaceName.MatchString(c.Bridge) {
		errs = append(errs, fmt.Errorf("bridge name %q: want a letter, then at most 14 letters, digits, '-' or '_'", c.Bridge))
	}
	if !filepath.IsAbs(c.StateDir) {
		errs = append(errs, fmt.Errorf("state folder %q: want an absolute path", c.StateDir))
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("MTU %d: want %d to %d, or 0 for that of the machine's way out", c.MTU, minMTU, maxMTU))
	}
	return errors.Join(append(errs, validateSubnets(c.Subnets))...)
}

func validateSubnets(subnets []netip.Prefix) error {
	if len(subnets) == 0 {
		return errors.New("subnets: want at least one")
	}
	var errs []error
	families := map[bool]bool{}
	for _, subnet := range subnets {
		errs = append(errs, validateSubnet(subnet))
		if is4 := subnet.Addr().Is4(); families[is4] {
			errs = append(errs, fmt.Errorf("subnet %s: there is another one of its family", subnet))
		} else {
			families[is4] = true
		}
	}
	return errors.Join(errs...)
}

func validateSubnet(subnet netip.Prefix) error {
	switch {
	case !subnet.IsValid() || subnet.Addr().Is4In6():
		return fmt.Errorf("subnet %s: not an IPv4 or IPv6 prefix", subnet)
	case subnet != subnet.Masked():
		return fmt.Errorf("subnet %s: has bits after the prefix; do you mean %s?", subnet, subnet.Masked())
	case subnet.Addr().BitLen()-subnet.Bits() < 3:
		return fmt.Errorf("subnet %s: too small, want room for at least 5 ports", subnet)
	}
	return nil
}
