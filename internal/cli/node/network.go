// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/internal/localnet"
)

// The pods' network. The addresses are private ones (RFC 1918, RFC 4193) that
// hardly anybody uses; the MTU leaves room for VXLAN over IPv6 (70 bytes).
const (
	PodBridge = "orpod0"
	podMTU    = 1430
)

// PodSubnets returns the prefixes of the pods' network.
func PodSubnets() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.127.0.0/24"), netip.MustParsePrefix("fd6f:7574:7270::/64")}
}

// Network gives pods their namespaces; [localnet.Network] is one.
type Network interface {
	AttachNetns(id string) (port *localnet.Port, path string, err error)
	Detach(id string) error
}

// PodNetwork opens the network of this node's pods. It makes nothing.
func (n *Node) PodNetwork() (Network, error) {
	net, err := localnet.Open(localnet.Config{
		Bridge: PodBridge, Subnets: PodSubnets(), MTU: podMTU,
		StateDir: filepath.Join(n.Root, "net"),
	})
	if err != nil {
		return nil, err // not net: a nil *Network is not a nil Network
	}
	return net, nil
}

// ResolvConf returns the lines of the pod's resolv.conf from this host's, and
// a hint when there is something the user should know.
func ResolvConf() (lines []string, hint string) {
	lines, servers, unreachable := localnet.ResolvConf()
	switch {
	case len(servers) > 0:
		return lines, ""
	case len(unreachable) > 0:
		return lines, fmt.Sprintf("this host's resolver %s is on loopback or on a link, which a pod cannot reach; give --dns ADDRESS", strings.Join(unreachable, ", "))
	}
	return lines, "this host has no resolver in /etc/resolv.conf; give --dns ADDRESS for names to work"
}
