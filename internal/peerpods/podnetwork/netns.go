// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet"
)

// ErrNoNetns means that a path names no network namespace: the file is absent,
// or its namespace was unmounted.
var ErrNoNetns = errors.New("no such network namespace")

// namespace is an open network namespace and a route socket in it. No thread
// has to enter the namespace to use the socket.
type namespace struct {
	*netlink.Handle
	ns netns.NsHandle
}

// openNamespace opens the namespace mounted at path; [ErrNoNetns] if there is
// none.
func openNamespace(path string) (*namespace, error) {
	ns, err := netns.GetFromPath(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoNetns, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return newNamespace(ns, path)
}

// currentNamespace opens that of the calling thread.
func currentNamespace() (*namespace, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("open this thread's network namespace: %w", err)
	}
	return newNamespace(ns, "of this thread")
}

func newNamespace(ns netns.NsHandle, path string) (*namespace, error) {
	var st unix.Statfs_t
	if unix.Fstatfs(int(ns), &st) != nil || st.Type != unix.NSFS_MAGIC && st.Type != unix.PROC_SUPER_MAGIC {
		ns.Close()
		return nil, fmt.Errorf("%w: %s is not a namespace", ErrNoNetns, path)
	}
	// Only the route family: a minimal guest kernel has no XFRM.
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return &namespace{Handle: handle, ns: ns}, nil
}

func (n *namespace) Close() {
	n.Handle.Close()
	n.ns.Close()
}

// link finds an interface by name; nil if there is none.
func (n *namespace) link(name string) (netlink.Link, error) {
	link, err := n.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up interface %s: %w", name, err)
	}
	return link, nil
}

// dumpTries bounds how often a listing is repeated that changed while the
// kernel wrote it, as happens on a node where pods come and go.
const dumpTries = 10

func dump[T any](list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return nil, err
}

func (n *namespace) links() ([]netlink.Link, error) {
	return dump(n.LinkList)
}

func (n *namespace) addrs(link netlink.Link, family int) ([]netlink.Addr, error) {
	return dump(func() ([]netlink.Addr, error) { return n.AddrList(link, family) })
}

// routes lists the unicast routes of the main table; linkIndex 0 means all.
func (n *namespace) routes(linkIndex, family int) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
	all, err := dump(func() ([]netlink.Route, error) {
		return n.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out []netlink.Route
	for _, route := range all {
		route = firstHop(route)
		if linkIndex == 0 || route.LinkIndex == linkIndex {
			out = append(out, route)
		}
	}
	return out, nil
}

// firstHop reduces a multipath route to its first hop.
func firstHop(route netlink.Route) netlink.Route {
	if len(route.MultiPath) > 0 {
		route.LinkIndex, route.Gw = route.MultiPath[0].LinkIndex, route.MultiPath[0].Gw
	}
	return route
}

// ensureNamespace opens the namespace mounted at path and makes one if there
// is none. A file that a crash left without its mount is used again.
func ensureNamespace(path string) (*namespace, error) {
	ns, err := openNamespace(path)
	if !errors.Is(err, ErrNoNetns) {
		return ns, err
	}
	if err := localnet.CreateNetns(path); err != nil {
		return nil, err
	}
	return openNamespace(path)
}
