// SPDX-License-Identifier: Apache-2.0

// Package node is what `outrigger` runs on this machine for its pods: a root
// folder, a cloud-api-adaptor that is started with the first pod and stopped
// with the last, and a network. Nothing of it stays when no pod is left.
package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/procid"
)

// DefaultRoot is the root folder of the superuser.
const DefaultRoot = "/run/outrigger"

// Node is one root folder.
type Node struct {
	Root string
	// Pool names the pool whose adaptor is meant; empty for the one that runs without a pool.
	Pool string
	// Provider is what an adaptor that is started here uses.
	Provider string
	// AdaptorArgs are further arguments for it.
	AdaptorArgs []string
	// AdaptorPath is the program; empty means found by [FindAdaptor].
	AdaptorPath string
}

// Pods returns the store of this node's records.
func (n *Node) Pods() record.Store { return record.Store{Dir: filepath.Join(n.Root, "pods.d")} }

// Socket returns the path of the socket of the adaptor that is started here.
func (n *Node) Socket() string { return filepath.Join(n.dir(), "hypervisor.sock") }

// dir returns the folder of the adaptor.
func (n *Node) dir() string {
	if n.Pool != "" {
		return filepath.Join(n.poolsDir(), n.Pool)
	}
	return n.Root
}

func (n *Node) logPath() string     { return filepath.Join(n.dir(), "adaptor.log") }
func (n *Node) adaptorPath() string { return filepath.Join(n.dir(), "adaptor.json") }
func (n *Node) podsDir() string     { return filepath.Join(n.dir(), "pods") }
func (n *Node) relaySocket() string { return filepath.Join(n.dir(), "relay.sock") }

// lockTimeout bounds the wait for other outrigger processes, which hold the
// lock for seconds at most: while an adaptor starts or stops.
const lockTimeout = 2 * time.Minute

// Lock excludes other outrigger processes until unlock is called. The lock is
// on a file in the root folder, which goes away with it.
func (n *Node) Lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := statefile.Acquire(ctx, filepath.Join(n.Root, "lock"))
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("another outrigger holds the lock: %w", err)
	case err != nil:
		return nil, err
	}
	return lock.Release, nil
}

// Served reports whether somebody answers at a unix socket.
func Served(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// daemons is what adaptor.json holds: what we started, to stop nothing else.
type daemons struct {
	Adaptor  procid.ID `json:"adaptor"`
	Relay    procid.ID `json:"relay"`
	Provider string    `json:"provider"`
	Args     []string  `json:"args,omitempty"`
}

func (n *Node) loadDaemons() (d daemons) {
	if statefile.Read(n.adaptorPath(), &d) != nil {
		return daemons{} // an unreadable file is like none
	}
	return d
}

func (n *Node) saveDaemons(d daemons) error { return statefile.Write(n.adaptorPath(), d) }

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
