// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrVNIInUse means that the node already has a tunnel with this VNI and port,
// possibly in a namespace that has no name.
var ErrVNIInUse = errors.New("the VXLAN network identifier is in use on this machine")

// tunnel is one end of a pod's tunnel.
type tunnel struct {
	name          string
	vni, port     int
	local, remote netip.Addr
	mtu           int
	mac           net.HardwareAddr // nil lets the kernel choose
}

// ensure makes the tunnel's interface in the namespace dest. Its UDP socket
// belongs to the namespace underlay for good: the kernel binds a VXLAN device
// to the namespace of the caller, not to the one it is created in. It gets its
// name afterwards, because the kernel also refuses names that the caller's
// namespace has, and a VM's own interface is often called eth0 like its pod's.
func (t *tunnel) ensure(underlay, dest *namespace) (link netlink.Link, created bool, err error) {
	link, err = dest.link(t.name)
	if err != nil {
		return nil, false, err
	}
	if link != nil && t.matches(link) {
		return link, false, nil
	}
	if link != nil {
		if link.Type() != "vxlan" {
			return nil, false, fmt.Errorf("interface %s exists in the pod's namespace and is of type %s", t.name, link.Type())
		}
		if err := dest.LinkDel(link); err != nil {
			return nil, false, fmt.Errorf("replace tunnel %s: %w", t.name, err)
		}
	}
	// An earlier run may have been killed before the device got its name.
	if err := dest.deleteLink(passingName(t.vni), "vxlan"); err != nil {
		return nil, false, err
	}
	if err := t.create(underlay, dest); err != nil {
		return nil, false, err
	}
	link, err = dest.rename(passingName(t.vni), t.name)
	if err != nil {
		return nil, true, errors.Join(err, dest.deleteLink(passingName(t.vni), "vxlan"))
	}
	return link, true, nil
}

// passingName returns the temporary name of a tunnel.
func passingName(vni int) string { return fmt.Sprintf("ppvx%x", vni) }

func (n *namespace) rename(from, to string) (netlink.Link, error) {
	link, err := n.LinkByName(from)
	if err != nil {
		return nil, fmt.Errorf("tunnel %s is missing after it was created: %w", from, err)
	}
	if err := n.LinkSetName(link, to); err != nil {
		return nil, fmt.Errorf("rename tunnel %s to %s: %w", from, to, err)
	}
	return n.LinkByName(to)
}

func (t *tunnel) create(underlay, dest *namespace) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = passingName(t.vni), t.mtu, t.mac
	attrs.Namespace = netlink.NsFd(dest.ns)
	err := underlay.LinkAdd(&netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: t.vni, Port: t.port,
		SrcAddr: t.local.AsSlice(), Group: t.remote.AsSlice(),
	})
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("%w (%d, UDP port %d)", ErrVNIInUse, t.vni, t.port)
	}
	if err != nil {
		return fmt.Errorf("create tunnel %s from %s to %s: %w", t.name, t.local, t.remote, err)
	}
	return nil
}

func (t *tunnel) matches(link netlink.Link) bool {
	have, ok := link.(*netlink.Vxlan)
	return ok && have.VxlanId == t.vni && have.Port == t.port &&
		have.SrcAddr.Equal(t.local.AsSlice()) && have.Group.Equal(t.remote.AsSlice())
}
