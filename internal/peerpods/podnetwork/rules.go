// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// All tunnels of a network namespace share one table. Their addresses, ports and
// VNIs are in sets, so a packet costs one look-up for each purpose, however many
// pods there are. The table is removed with the last tunnel. It has two purposes.
//
// The tunnels' UDP packets are exempt from the node's connection tracking. A
// VXLAN packet has a source port by its inner flow and the answer another one,
// so tracking sees no connection: it would keep an entry for each flow of each
// pod that never helps, and firewalls that drop what is "invalid" (Calico's
// do) or masquerade what leaves the node break the tunnel.
//
// A tunnel takes packets only from its other end. The kernel's VXLAN receiver
// does not look at the outer source: without this check any host that reaches
// the UDP port could send packets in the pod's name, and to the pod past its
// network policy.
const rulesTable = "outrigger_podnetwork"

// rulesMu prevents that an empty table is removed while a tunnel is added to it.
// A mutex is enough: one process per node sets up tunnels.
var rulesMu sync.Mutex

var warnNoRules sync.Once

// farEnd is the other end of one tunnel. With guard, packets from anywhere else are
// dropped. If it is prepared, a table that is there is this program's own, and whole.
type farEnd struct {
	addr            netip.Addr
	port, vni       int
	guard, prepared bool
}

// ipFamily is what differs between IPv4 and IPv6 in the table.
type ipFamily struct {
	// suffix ends the names of sets, whose addresses are of type addr.
	suffix string
	addr   nftables.SetDatatype
	proto  byte
	// source is where the source address is in the IP header (RFC 791, RFC 8200), in
	// bytes; the destination, of the same size, follows it.
	source, size uint32
	// next is the register after an address in the first registers.
	next uint32
}

var (
	ipv4       = ipFamily{"4", nftables.TypeIPAddr, unix.NFPROTO_IPV4, 12, 4, unix.NFT_REG32_01}
	ipv6       = ipFamily{"6", nftables.TypeIP6Addr, unix.NFPROTO_IPV6, 8, 16, unix.NFT_REG32_04}
	ipFamilies = []ipFamily{ipv4, ipv6}
)

// entry is an element of one of the table's sets.
type entry struct {
	set *nftables.Set
	key []byte
}

// entries returns the table's elements for a tunnel. They are added and removed
// together, so the last one is present only if all are.
func (f farEnd) entries(table *nftables.Table) []entry {
	port := append(binaryutil.BigEndian.PutUint16(uint16(f.port)), 0, 0)
	vni := []byte{byte(f.vni >> 16), byte(f.vni >> 8), byte(f.vni), 0}
	family := ipv6
	if f.addr.Is4() {
		family = ipv4
	}
	list := []entry{{tunnelSet(table, family), slices.Concat(f.addr.AsSlice(), port)}}
	if f.guard {
		list = append(list,
			entry{vniSet(table), slices.Concat(port, vni)},
			entry{senderSet(table, family), slices.Concat(f.addr.AsSlice(), port, vni)})
	}
	return list
}

// errNoNftables means that this kernel cannot have the table at all.
var errNoNftables = errors.New("the kernel has no nf_tables")

// addRules adds a tunnel to the table and reports whether it did. Without the guard
// a failure is only logged: only some firewalls need the exemption from connection
// tracking.
func addRules(ns netns.NsHandle, far farEnd) (bool, error) {
	rulesMu.Lock()
	defer rulesMu.Unlock()
	changed, err := tryAddRules(ns, far)
	switch {
	case err == nil:
		return changed, nil
	case far.guard:
		return false, fmt.Errorf("%w; packets from others than node and VM would not be dropped: load the module nf_tables, or set -tunnel-source-check=false on the node", err)
	}
	warnNoRules.Do(func() {
		slog.Warn("cannot exempt pod tunnels from connection tracking; a firewall that drops untracked or invalid UDP may stop them", "error", err)
	})
	return false, nil
}

func tryAddRules(ns netns.NsHandle, far farEnd) (bool, error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoNftables, err)
	}
	table, err := findTable(conn)
	if err != nil {
		return false, err
	}
	if table != nil {
		list := far.entries(table)
		if present, err := list[len(list)-1].present(conn); err != nil || present {
			return false, err
		}
	}
	if table == nil || !far.prepared {
		if table, err = addTable(conn); err != nil {
			return false, err
		}
	}
	list := far.entries(table)
	if far.guard {
		list = append(list, entry{portSet(table), binaryutil.BigEndian.PutUint16(uint16(far.port))})
	}
	for _, e := range list {
		if err := conn.SetAddElements(e.set, []nftables.SetElement{{Key: e.key}}); err != nil {
			return false, err
		}
	}
	if err := conn.Flush(); err != nil {
		return false, fmt.Errorf("nftables: %w", err)
	}
	return true, nil
}

// addTable adds the table without a tunnel. What is there already stays, rules aside, which are made again.
func addTable(conn *nftables.Conn) (*nftables.Table, error) {
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: rulesTable})
	for _, set := range []*nftables.Set{
		tunnelSet(table, ipv4), tunnelSet(table, ipv6), portSet(table), vniSet(table), senderSet(table, ipv4), senderSet(table, ipv6),
	} {
		if err := conn.AddSet(set, nil); err != nil {
			return nil, err
		}
	}
	addChain(conn, table, "output", nftables.ChainHookOutput, untrackedRules(table, false))
	addChain(conn, table, "prerouting", nftables.ChainHookPrerouting, untrackedRules(table, true))
	addChain(conn, table, "input", nftables.ChainHookInput, guardRules(table))
	return table, nil
}

// removeRules removes a tunnel from the table, guarded or not, and the table with
// the last tunnel.
func removeRules(ns netns.NsHandle, far farEnd) error {
	if !far.addr.IsValid() {
		return nil // the other end never had an address, so there was no set-up
	}
	rulesMu.Lock()
	defer rulesMu.Unlock()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil // no nf_tables, so there is no table either
	}
	if err := tryRemoveRules(conn, far); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove tunnel to %s from nftables table %s: %w", far.addr, rulesTable, err)
	}
	return nil
}

func tryRemoveRules(conn *nftables.Conn, far farEnd) error {
	table, err := findTable(conn)
	if errors.Is(err, errNoNftables) || err == nil && table == nil {
		return nil
	}
	if err != nil {
		return err
	}
	count, err := countTunnels(conn, table)
	if err != nil {
		return err
	}
	far.guard = true
	var existing []entry
	for i, e := range far.entries(table) {
		present, err := e.present(conn)
		if err == nil && present && e.set.Name == vniSet(table).Name {
			present, err = far.onlyUserOfVNI(conn, table)
		}
		if err != nil {
			return err
		}
		if present {
			existing = append(existing, e)
		}
		if present && i == 0 {
			count--
		}
	}
	if count == 0 {
		conn.DelTable(table)
		return conn.Flush()
	}
	for _, e := range existing {
		if err := conn.SetDeleteElements(e.set, []nftables.SetElement{{Key: e.key}}); err != nil {
			return err
		}
	}
	return conn.Flush()
}

// onlyUserOfVNI reports whether no other tunnel has the same VNI. A set-up that
// failed because another tunnel has the VNI is undone, too, and must not remove that
// tunnel's guard.
func (f farEnd) onlyUserOfVNI(conn *nftables.Conn, table *nftables.Table) (bool, error) {
	entries := f.entries(table)
	tail, own := entries[1].key, entries[2].key
	for _, family := range ipFamilies {
		elements, err := conn.GetSetElements(senderSet(table, family))
		if err != nil && !isNotFound(err) {
			return false, fmt.Errorf("list senders in nftables: %w", err)
		}
		for _, element := range elements {
			if bytes.HasSuffix(element.Key, tail) && !bytes.Equal(element.Key, own) {
				return false, nil
			}
		}
	}
	return true, nil
}

// findTable returns nil if there is no table, and [errNoNftables] if the kernel
// cannot have one.
func findTable(conn *nftables.Conn) (*nftables.Table, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || isNotFound(err) {
			err = fmt.Errorf("%w: %w", errNoNftables, err)
		}
		return nil, err
	}
	for _, table := range tables {
		if table.Name == rulesTable {
			return table, nil
		}
	}
	return nil, nil
}

// tunnelSet holds the other ends: (address, UDP port).
func tunnelSet(table *nftables.Table, family ipFamily) *nftables.Set {
	return newSet(table, "tunnels"+family.suffix, family.addr, nftables.TypeInetService)
}

// senderSet holds who may send: (address, UDP port, VNI).
func senderSet(table *nftables.Table, family ipFamily) *nftables.Set {
	return newSet(table, "senders"+family.suffix, family.addr, nftables.TypeInetService, nftables.TypeMark)
}

// vniSet holds the guarded tunnels: (UDP port, VNI). Programs other than ours may
// use the same port.
func vniSet(table *nftables.Table) *nftables.Set {
	return newSet(table, "vnis", nftables.TypeInetService, nftables.TypeMark)
}

// portSet holds the UDP ports that a guarded tunnel has, or had.
func portSet(table *nftables.Table) *nftables.Set {
	return newSet(table, "ports", nftables.TypeInetService)
}

func newSet(table *nftables.Table, name string, key ...nftables.SetDatatype) *nftables.Set {
	set := &nftables.Set{Table: table, Name: name, KeyType: key[0], KeyByteOrder: binaryutil.BigEndian}
	if len(key) > 1 {
		set.Concatenation, set.KeyType = true, nftables.MustConcatSetType(key...)
	}
	return set
}

// present reports whether the set has the element. A table of an earlier version
// lacks some sets.
func (e entry) present(conn *nftables.Conn) (bool, error) {
	elements, err := conn.GetSetElements(e.set)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list %s in nftables: %w", e.set.Name, err)
	}
	return slices.ContainsFunc(elements, func(element nftables.SetElement) bool { return bytes.Equal(element.Key, e.key) }), nil
}

func countTunnels(conn *nftables.Conn, table *nftables.Table) (int, error) {
	count := 0
	for _, family := range ipFamilies {
		elements, err := conn.GetSetElements(tunnelSet(table, family))
		if err != nil {
			return 0, fmt.Errorf("list tunnels in nftables: %w", err)
		}
		count += len(elements)
	}
	return count, nil
}

// addChain replaces the rules of a chain within the caller's transaction.
func addChain(conn *nftables.Conn, table *nftables.Table, name string, hook *nftables.ChainHook, rules [][]expr.Any) {
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: name, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityRaw,
	})
	conn.FlushChain(chain)
	for _, rule := range rules {
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule})
	}
}

// untrackedRules match UDP from (inbound) or to the other end of a tunnel.
func untrackedRules(table *nftables.Table, inbound bool) [][]expr.Any {
	var rules [][]expr.Any
	for _, family := range ipFamilies {
		address := family.source
		if !inbound {
			address += family.size
		}
		rules = append(rules, slices.Concat(
			isUDP(family), loadAddress(family, address), loadPort(family.next),
			lookup(tunnelSet(table, family), false), []expr.Any{&expr.Notrack{}}))
	}
	return rules
}

// guardRules drop packets that do not come from a tunnel's other end. They are in
// the input hook, where IPv4 fragments have been reassembled. Of IPv6 packets the
// first fragment is dropped unless it holds the VNI.
func guardRules(table *nftables.Table) [][]expr.Any {
	accept, drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	udp := is(expr.MetaKeyL4PROTO, unix.IPPROTO_UDP)
	port := loadPort(unix.NFT_REG32_00)
	rules := [][]expr.Any{slices.Concat(udp, port, lookup(portSet(table), true), accept)}
	for _, family := range ipFamilies {
		rules = append(rules, slices.Concat(
			isUDP(family), loadAddress(family, family.source), loadPort(family.next), loadVNI(family.next+1),
			lookup(senderSet(table, family), false), accept))
	}
	return append(rules,
		slices.Concat(udp, port, loadVNI(unix.NFT_REG32_01), lookup(vniSet(table), true), accept),
		slices.Concat(udp, port, lookup(portSet(table), false), drop),
	)
}

func isUDP(family ipFamily) []expr.Any {
	return slices.Concat(is(expr.MetaKeyNFPROTO, family.proto), is(expr.MetaKeyL4PROTO, unix.IPPROTO_UDP))
}

func is(key expr.MetaKey, value byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: []byte{value}},
	}
}

// loadAddress takes the address at an offset of the IP header into the first registers.
func loadAddress(family ipFamily, offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: unix.NFT_REG32_00, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: family.size}}
}

// loadPort takes the destination port from the UDP header (RFC 768).
func loadPort(register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}}
}

// loadVNI takes the VNI from the VXLAN header behind the UDP header's 8 bytes
// (RFC 7348, section 5).
func loadVNI(register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 8 + 4, Len: 3}}
}

// lookup looks for what is in the first registers: in the set or, inverted, outside of it.
func lookup(set *nftables.Set, invert bool) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: unix.NFT_REG32_00, SetName: set.Name, Invert: invert}}
}
