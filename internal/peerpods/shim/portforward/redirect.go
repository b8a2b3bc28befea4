// SPDX-License-Identifier: Apache-2.0

package portforward

import (
	"fmt"
	"net"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// table goes with the namespace. One that is there is of a shim that has died.
const table = "outrigger_portforward"

// redirect sends TCP connections to 127.0.0.0/8, whatever their port, to ours.
func redirect(ns netns.NsHandle, port int) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return err
	}
	t := conn.AddTable(&nftables.Table{Name: table, Family: nftables.TableFamilyIPv4})
	conn.FlushTable(t)
	accept := nftables.ChainPolicyAccept
	chain := conn.AddChain(&nftables.Chain{
		Name: "output", Table: t, Type: nftables.ChainTypeNAT, Policy: &accept,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		// The first byte of the destination's address.
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{127}},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(port))},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1},
	}})
	return conn.Flush()
}

// originalPort returns the port of a connection before it was redirected.
func originalPort(c *net.TCPConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var port int
	var failed error
	err = raw.Control(func(fd uintptr) {
		// A sockaddr_in fits into this structure, whose size is the least one
		// that the kernel takes.
		original, err := unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			failed = os.NewSyscallError("getsockopt SO_ORIGINAL_DST", err)
			return
		}
		port = int(original.Multiaddr[2])<<8 | int(original.Multiaddr[3])
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the port: %w", err)
	}
	return port, nil
}
