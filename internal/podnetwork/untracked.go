// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// The tunnels' UDP packets are exempt from the node's connection tracking. A
// VXLAN packet has a source port by its inner flow and the answer another one,
// so tracking sees no connection: it would keep an entry for each flow of each
// pod that never helps, and firewalls that drop what is "invalid" (Calico's
// do) or masquerade what leaves the node break the tunnel.
//
// All tunnels of a node share one table with a set of (VM address, UDP port)
// for each family, so a packet costs one look-up however many pods there are.
// The table goes with the last tunnel.
const untrackedTable = "outrigger_podnetwork"

// untrackedMu keeps the removal of an empty table apart from an addition. One
// process per node sets up tunnels.
var untrackedMu sync.Mutex

var warnUntracked sync.Once

// addUntracked goes on without the exemption where nf_tables is missing: only
// some firewalls need it. It reports whether it added the VM.
func addUntracked(ns netns.NsHandle, vm netip.Addr, port int) bool {
	untrackedMu.Lock()
	defer untrackedMu.Unlock()
	changed, err := tryAddUntracked(ns, vm, port)
	if err != nil {
		warnUntracked.Do(func() {
			slog.Warn("cannot exempt pod tunnels from connection tracking; a firewall that drops untracked or invalid UDP may stop them", "error", err)
		})
	}
	return changed
}

func tryAddUntracked(ns netns.NsHandle, vm netip.Addr, port int) (bool, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, err
	}
	present, err := hasUntracked(conn, vm, port)
	if err != nil || present {
		return false, err
	}
	table := conn.AddTable(newTable())
	for _, set := range []*nftables.Set{tunnelSet(table, true), tunnelSet(table, false)} {
		if err := conn.AddSet(set, nil); err != nil {
			return false, err
		}
	}
	addChain(conn, table, "output", nftables.ChainHookOutput, false)
	addChain(conn, table, "prerouting", nftables.ChainHookPrerouting, true)
	if err := conn.SetAddElements(tunnelSet(table, vm.Is4()), tunnelElement(vm, port)); err != nil {
		return false, err
	}
	if err := conn.Flush(); err != nil {
		return false, fmt.Errorf("nftables: %w", err)
	}
	return true, nil
}

func removeUntracked(ns netns.NsHandle, vm netip.Addr, port int) error {
	if !vm.IsValid() {
		return nil // the VM never had an address, so there was no set-up
	}
	untrackedMu.Lock()
	defer untrackedMu.Unlock()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil // no nf_tables, so there is no table either
	}
	if err := tryRemoveUntracked(conn, vm, port); err != nil && !gone(err) {
		return fmt.Errorf("remove tunnel to %s from nftables table %s: %w", vm, untrackedTable, err)
	}
	return nil
}

func tryRemoveUntracked(conn *nftables.Conn, vm netip.Addr, port int) error {
	table, err := findTable(conn)
	if err != nil || table == nil {
		return err
	}
	present, err := hasUntracked(conn, vm, port)
	if err != nil {
		return err
	}
	count, err := countTunnels(conn, table)
	if err != nil {
		return err
	}
	switch {
	case count == 0 || present && count == 1:
		conn.DelTable(table)
	case present:
		err = conn.SetDeleteElements(tunnelSet(table, vm.Is4()), tunnelElement(vm, port))
	default:
		return nil
	}
	return errors.Join(err, conn.Flush())
}

func newTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: untrackedTable}
}

// findTable is nil if there is none, also where nf_tables is missing.
func findTable(conn *nftables.Conn) (*nftables.Table, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		if unsupported(err) {
			return nil, nil
		}
		return nil, err
	}
	for _, table := range tables {
		if table.Name == untrackedTable {
			return table, nil
		}
	}
	return nil, nil
}

func unsupported(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || gone(err)
}

func tunnelSet(table *nftables.Table, v4 bool) *nftables.Set {
	name, addrType := "tunnels6", nftables.TypeIP6Addr
	if v4 {
		name, addrType = "tunnels4", nftables.TypeIPAddr
	}
	return &nftables.Set{
		Table: table, Name: name, Concatenation: true,
		KeyType:      nftables.MustConcatSetType(addrType, nftables.TypeInetService),
		KeyByteOrder: binaryutil.BigEndian,
	}
}

// tunnelElement pads the port to the four bytes of a register.
func tunnelElement(vm netip.Addr, port int) []nftables.SetElement {
	key := append(vm.AsSlice(), binaryutil.BigEndian.PutUint16(uint16(port))...)
	return []nftables.SetElement{{Key: append(key, 0, 0)}}
}

func hasUntracked(conn *nftables.Conn, vm netip.Addr, port int) (bool, error) {
	table, err := findTable(conn)
	if err != nil || table == nil {
		return false, err
	}
	elements, err := conn.GetSetElements(tunnelSet(table, vm.Is4()))
	if err != nil {
		return false, fmt.Errorf("list tunnels in nftables: %w", err)
	}
	want := string(tunnelElement(vm, port)[0].Key)
	for _, element := range elements {
		if string(element.Key) == want {
			return true, nil
		}
	}
	return false, nil
}

func countTunnels(conn *nftables.Conn, table *nftables.Table) (int, error) {
	count := 0
	for _, v4 := range []bool{true, false} {
		elements, err := conn.GetSetElements(tunnelSet(table, v4))
		if err != nil {
			return 0, fmt.Errorf("list tunnels in nftables: %w", err)
		}
		count += len(elements)
	}
	return count, nil
}

// addChain replaces the rules of a chain within the caller's transaction.
func addChain(conn *nftables.Conn, table *nftables.Table, name string, hook *nftables.ChainHook, inbound bool) {
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: name, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityRaw,
	})
	conn.FlushChain(chain)
	for _, v4 := range []bool{true, false} {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: untrackedRule(tunnelSet(table, v4), v4, inbound)})
	}
}

// untrackedRule matches UDP from (inbound) or to (VM address, port) in set.
func untrackedRule(set *nftables.Set, v4, inbound bool) []expr.Any {
	family, offset, size, portRegister := byte(unix.NFPROTO_IPV6), uint32(24), uint32(16), uint32(unix.NFT_REG_2)
	if v4 {
		family, offset, size, portRegister = unix.NFPROTO_IPV4, 16, 4, unix.NFT_REG32_01
	}
	if inbound {
		offset -= size // the source precedes the destination
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{DestRegister: unix.NFT_REG_1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Payload{DestRegister: portRegister, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: set.Name},
		&expr.Notrack{},
	}
}
