// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func (n *Network) tableName() string { return "outrigger_" + n.cfg.Bridge }

// ensureNAT makes the network's table if it is not there, in one transaction:
// no table is ever partly created. Whoever flushes the ruleset of the machine
// loses it until the next port is attached.
func (n *Network) ensureNAT() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	there, err := n.hasTable(conn)
	if err != nil {
		return err
	}
	if !there {
		n.addTable(conn)
		if err := conn.Flush(); err != nil {
			return fmt.Errorf("create nft table inet %s (the kernel needs nf_tables with nat and masquerade): %w", n.tableName(), err)
		}
	}
	return n.openForeignFilters(conn)
}

func (n *Network) hasTable(conn *nftables.Conn) (bool, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list nft tables: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == n.tableName() }), nil
}

func (n *Network) addTable(conn *nftables.Conn) {
	table := conn.AddTable(&nftables.Table{Name: n.tableName(), Family: nftables.TableFamilyINet})
	accept := nftables.ChainPolicyAccept
	forward := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Policy: &accept,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	// Ports may begin conversations with the outside, not the other way round.
	n.addRule(conn, forward, nil, n.fromBridge(), verdict(expr.VerdictAccept))
	n.addRule(conn, forward, nil, n.toBridge(), answered(), verdict(expr.VerdictAccept))
	n.addRule(conn, forward, nil, n.toBridge(), verdict(expr.VerdictDrop))
	postrouting := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT, Policy: &accept,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, subnet := range n.cfg.Subnets {
		n.addRule(conn, postrouting, nil, fromSubnet(subnet), n.interfaceIs(expr.MetaKeyOIFNAME, expr.CmpOpNeq), []expr.Any{&expr.Masq{}})
	}
}

func (n *Network) addRule(conn *nftables.Conn, chain *nftables.Chain, mark []byte, parts ...[]expr.Any) {
	rule := &nftables.Rule{Table: chain.Table, Chain: chain, UserData: mark}
	for _, part := range parts {
		rule.Exprs = append(rule.Exprs, part...)
	}
	if mark != nil {
		conn.InsertRule(rule)
		return
	}
	conn.AddRule(rule)
}

func (n *Network) removeNAT() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	if err := n.closeForeignFilters(conn); err != nil {
		return err
	}
	there, err := n.hasTable(conn)
	if !there || err != nil {
		return err
	}
	conn.DelTable(&nftables.Table{Name: n.tableName(), Family: nftables.TableFamilyINet})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete nft table inet %s: %w", n.tableName(), err)
	}
	return nil
}

// eachForeignFilter calls do for the FORWARD chains that may drop what no rule accepts, as
// Docker sets them up, with our rules in them. An accept in our own table does not
// overrule those, so our rules stand in them too, as long as the network exists.
func (n *Network) eachForeignFilter(conn *nftables.Conn, do func(chain *nftables.Chain, ours []*nftables.Rule) error) error {
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		chains, err := conn.ListChainsOfTableFamily(family)
		if err != nil {
			return fmt.Errorf("list nft chains: %w", err)
		}
		for _, chain := range chains {
			if chain.Table.Name != "filter" || chain.Name != "FORWARD" {
				continue
			}
			rules, err := conn.GetRules(chain.Table, chain)
			if err != nil {
				return fmt.Errorf("list rules of chain FORWARD: %w", err)
			}
			ours := slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return !bytes.Equal(r.UserData, n.ruleMark()) })
			if err := do(chain, ours); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Network) openForeignFilters(conn *nftables.Conn) error {
	return n.eachForeignFilter(conn, func(chain *nftables.Chain, ours []*nftables.Rule) error {
		if len(ours) > 0 || chain.Policy == nil || *chain.Policy != nftables.ChainPolicyDrop {
			return nil
		}
		n.addRule(conn, chain, n.ruleMark(), n.fromBridge(), verdict(expr.VerdictAccept))
		n.addRule(conn, chain, n.ruleMark(), n.toBridge(), answered(), verdict(expr.VerdictAccept))
		if err := conn.Flush(); err != nil {
			return fmt.Errorf("add rules to chain FORWARD, which drops by default: %w", err)
		}
		return nil
	})
}

func (n *Network) closeForeignFilters(conn *nftables.Conn) error {
	return n.eachForeignFilter(conn, func(_ *nftables.Chain, ours []*nftables.Rule) error {
		for _, rule := range ours {
			if err := conn.DelRule(rule); err != nil {
				return fmt.Errorf("remove a rule from chain FORWARD: %w", err)
			}
		}
		if err := conn.Flush(); err != nil {
			return fmt.Errorf("remove rules from chain FORWARD: %w", err)
		}
		return nil
	})
}

// ruleMark is a comment as nft and iptables-nft write and show it: type 0, its
// length, its text (libnftnl's udata format).
func (n *Network) ruleMark() []byte {
	text := n.tableName() + "\x00"
	return append([]byte{0, byte(len(text))}, text...)
}

func (n *Network) fromBridge() []expr.Any { return n.interfaceIs(expr.MetaKeyIIFNAME, expr.CmpOpEq) }
func (n *Network) toBridge() []expr.Any   { return n.interfaceIs(expr.MetaKeyOIFNAME, expr.CmpOpEq) }

// interfaceIs compares an interface of a packet with the bridge.
func (n *Network) interfaceIs(key expr.MetaKey, op expr.CmpOp) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, n.cfg.Bridge)
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: padded},
	}
}

// answered matches packets of conversations that the other side began.
func answered() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
			Xor:  binaryutil.NativeEndian.PutUint32(0),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

// fromSubnet matches the source address: at offset 12 of an IPv4 header
// (RFC 791, section 3.1), at 8 of an IPv6 one (RFC 8200, section 3).
func fromSubnet(subnet netip.Prefix) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(12)
	if subnet.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 8
	}
	size := uint32(subnet.Addr().BitLen() / 8)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: size,
			Mask: net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen()), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: subnet.Addr().AsSlice()},
	}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }
