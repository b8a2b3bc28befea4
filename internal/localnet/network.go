// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// Errors of this package that callers tell apart.
var (
	// ErrFull means that no address is free.
	ErrFull = errors.New("network is full")
	// ErrClash means that the network's addresses or names are somebody else's.
	ErrClash = errors.New("network clash")
)

// lockWait bounds how long one call waits for another process's call; each
// takes milliseconds.
const lockWait = time.Minute

// netnsDir is where namespaces of pods are mounted. It is not that of ip-netns(8):
// the first `ip netns add` of a machine mounts that folder over itself, and what
// was mounted below can then not be removed any more.
const netnsDir = "/run/outrigger/netns"

// Network is one bridge with its ports. Its methods are safe for concurrent
// use, also by several processes.
type Network struct{ cfg Config }

// Port is one attached port.
type Port struct {
	ID        string           // the caller's
	Interface string           // name of the tap, or of the host's end of the pod's veth pair
	MAC       net.HardwareAddr // of the VM's interface, or of eth0 in the pod's namespace
	Addrs     []netip.Prefix   // in the order of Config.Subnets
	Gateways  []netip.Addr     // the bridge's addresses in the same order
	MTU       int              // in bytes
}

// Open checks cfg. It makes nothing.
func Open(cfg Config) (*Network, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("local network: %w", err)
	}
	if cfg.RunDir == "" {
		cfg.RunDir = defaultRunDir
	}
	cfg.Subnets = usableSubnets(cfg.Subnets)
	return &Network{cfg: cfg}, nil
}

// usableSubnets leaves out IPv6 where the kernel has none, unless nothing
// would be left; then attaching says what is wrong.
func usableSubnets(subnets []netip.Prefix) []netip.Prefix {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil || len(subnets) == 1 {
		return slices.Clone(subnets)
	}
	return slices.DeleteFunc(slices.Clone(subnets), func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// Gateways returns the bridge's own addresses in the order of Config.Subnets.
func (n *Network) Gateways() []netip.Addr {
	var addrs []netip.Addr
	for _, subnet := range n.cfg.Subnets {
		addrs = append(addrs, hostAddr(subnet, 1))
	}
	return addrs
}

// AttachTap returns the tap of that id, made if it is not there. The tap is
// persistent: it waits for a VM, and survives one.
//
// Errors: ErrFull, ErrClash, fs.ErrPermission without CAP_NET_ADMIN.
func (n *Network) AttachTap(id string) (*Port, error) {
	l, err := n.attach(id, kindTap)
	if err != nil {
		return nil, err
	}
	return n.port(id, l), nil
}

// AttachNetns returns the network namespace of that id, made if it is not
// there, and its path: eth0 in it has the port's addresses and default routes.
//
// Errors: those of AttachTap.
func (n *Network) AttachNetns(id string) (*Port, string, error) {
	l, err := n.attach(id, kindNetns)
	if err != nil {
		return nil, "", err
	}
	return n.port(id, l), filepath.Join(netnsDir, l.Netns), nil
}

func (n *Network) attach(id, kind string) (*lease, error) {
	if id == "" {
		return nil, errors.New("attach: empty port id")
	}
	unlock, err := n.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	st, err := n.load()
	if err != nil {
		return nil, err
	}
	l, known, err := n.leaseFor(st, id, kind)
	if err != nil {
		return nil, err
	}
	if err := n.makePort(st, l); err != nil {
		if !known {
			err = errors.Join(err, n.forget(st, id))
		}
		return nil, fmt.Errorf("attach %s to network %s: %w", id, n.cfg.Bridge, explain(err))
	}
	return l, nil
}

// leaseFor returns a lease that is on disk before anything is made for it.
func (n *Network) leaseFor(st *state, id, kind string) (l *lease, known bool, err error) {
	if err := n.adopt(st); err != nil {
		return nil, false, err
	}
	if l := st.Leases[id]; l != nil {
		if l.Kind != kind {
			return nil, true, fmt.Errorf("%w: port %s of network %s is a %s, not a %s", ErrClash, id, n.cfg.Bridge, l.Kind, kind)
		}
		return l, true, nil
	}
	l, err = n.grant(st, id, kind)
	if err != nil {
		return nil, false, err
	}
	return l, false, n.save(st)
}

func (n *Network) makePort(st *state, l *lease) error {
	bridge, err := n.ensureBridge(st)
	if err != nil {
		return err
	}
	n.sweep(st, bridge)
	if err := n.ensureForwarding(); err != nil {
		return err
	}
	if err := n.ensureNAT(); err != nil {
		return err
	}
	if l.Kind == kindTap {
		return n.ensureTap(st, bridge, l)
	}
	return n.ensureNetns(st, bridge, l)
}

// Detach removes the port of that id; with the last one goes the network. A
// port that does not exist is success.
func (n *Network) Detach(id string) error {
	if !n.exists() {
		return nil
	}
	unlock, err := n.lock()
	if err != nil {
		return err
	}
	defer unlock()
	st, err := n.load()
	if err != nil {
		return err
	}
	if err := n.forget(st, id); err != nil {
		return fmt.Errorf("detach %s from network %s: %w", id, n.cfg.Bridge, explain(err))
	}
	return nil
}

// exists reports whether there is anything that Detach could remove.
func (n *Network) exists() bool {
	if _, err := os.Stat(n.statePath()); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	bridge, err := n.ownBridge()
	return bridge != nil || err != nil
}

// forget removes a port before its lease, so that no interface is ever without
// one.
func (n *Network) forget(st *state, id string) error {
	if l := st.Leases[id]; l != nil {
		if err := n.removePort(l); err != nil {
			return err
		}
		delete(st.Leases, id)
		if err := n.save(st); err != nil {
			return err
		}
	}
	if len(st.Leases) > 0 {
		return nil
	}
	return n.tearDown(st)
}

// tearDown removes what the network made apart from ports. The state file goes
// last: while it is there, the next Detach comes here again.
func (n *Network) tearDown(st *state) error {
	bridge, err := n.ownBridge()
	if err != nil {
		return err
	}
	if bridge != nil {
		n.sweep(st, bridge)
	}
	// Forwarding is claimed only while the bridge exists.
	errs := []error{n.releaseForwarding(), n.removeNAT()}
	if bridge != nil {
		errs = append(errs, deleteLink(bridge.Attrs().Name))
	}
	// The bridge goes last, so without one there is nothing of the others that
	// an ordinary user would not be allowed to remove.
	if err := errors.Join(errs...); err != nil && (bridge != nil || !errors.Is(err, fs.ErrPermission)) {
		return err
	}
	if err := os.Remove(n.statePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Ports returns all ports, by id.
func (n *Network) Ports() ([]Port, error) {
	st, err := n.load()
	if err != nil {
		return nil, err
	}
	var ports []Port
	for _, id := range slices.Sorted(maps.Keys(st.Leases)) {
		ports = append(ports, *n.port(id, st.Leases[id]))
	}
	return ports, nil
}

func (n *Network) port(id string, l *lease) *Port {
	mac, _ := net.ParseMAC(l.MAC)
	return &Port{
		ID: id, Interface: l.Interface, MAC: mac, Addrs: slices.Clone(l.Addrs),
		Gateways: n.Gateways(), MTU: n.linkMTU(l.Interface),
	}
}

// lock serialises all changes to this network. When nothing is left in the
// state folder, releasing it removes the folder too.
func (n *Network) lock() (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	lock, err := statefile.Acquire(ctx, filepath.Join(n.cfg.StateDir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", n.cfg.Bridge, err)
	}
	return func() {
		if _, err := os.Stat(n.statePath()); err == nil {
			lock.Release()
			return
		}
		lock.ReleaseAndRemove()
		os.Remove(n.cfg.StateDir)
	}, nil
}

// explain returns what to do about the errors of an ordinary user.
func explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (run as root, or with CAP_NET_ADMIN and access to /dev/net/tun)", err)
	case errors.Is(err, errNoTun):
		return fmt.Errorf("%w (the kernel module tun is missing: modprobe tun; in a container, pass the device in)", err)
	}
	return err
}

func (n *Network) log() *slog.Logger { return slog.With("bridge", n.cfg.Bridge) }
