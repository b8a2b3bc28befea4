// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
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

// Network gives pods their namespaces.
type Network interface {
	// Attach makes the namespace of a pod and returns its path and addresses.
	Attach(id string) (netns string, addrs []netip.Prefix, err error)
	// Detach removes it; an unknown id is success.
	Detach(id string) error
}

// PodNetwork opens the network of this node's pods. It makes nothing.
func (n *Node) PodNetwork() (Network, error) {
	net, err := localnet.Open(localnet.Config{
		Bridge: PodBridge, Subnets: PodSubnets(), MTU: podMTU,
		StateDir: filepath.Join(n.Root, "net"), NAT: true,
	})
	if err != nil {
		return nil, err
	}
	return podNetwork{net}, nil
}

type podNetwork struct{ net *localnet.Network }

func (p podNetwork) Attach(id string) (string, []netip.Prefix, error) {
	port, netns, err := p.net.AttachNetns(id)
	if err != nil {
		return "", nil, err
	}
	return netns, port.Addrs, nil
}

func (p podNetwork) Detach(id string) error { return p.net.Detach(id) }

// ResolvConf returns the lines of the pod's resolv.conf from this host's, and
// a hint when there is something the user should know. Resolvers on a loopback
// address cannot be reached from a pod.
func ResolvConf(files ...string) (lines []string, hint string) {
	if len(files) == 0 {
		// systemd-resolved keeps the real servers in its own file.
		files = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}
	}
	var skipped []string
	for _, file := range files {
		usable, loopback := readResolvConf(file)
		skipped = append(skipped, loopback...)
		if hasServer(usable) {
			return usable, ""
		}
		if lines == nil {
			lines = usable
		}
	}
	if len(skipped) > 0 {
		return lines, fmt.Sprintf("this host's resolver %s is on loopback, which a pod cannot reach; give --dns ADDRESS", strings.Join(skipped, ", "))
	}
	return lines, "this host has no resolver in /etc/resolv.conf; give --dns ADDRESS for names to work"
}

func hasServer(lines []string) bool {
	for _, l := range lines {
		if strings.HasPrefix(l, "nameserver") {
			return true
		}
	}
	return false
}

func readResolvConf(file string) (usable, loopback []string) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if fields[0] == "nameserver" && err == nil && addr.IsLoopback() {
			loopback = append(loopback, fields[1])
			continue
		}
		usable = append(usable, strings.Join(fields, " "))
	}
	return usable, loopback
}
