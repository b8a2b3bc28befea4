// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// The kinds of port.
const (
	kindTap   = "tap"
	kindNetns = "netns"
)

// maxHosts bounds how far a large prefix is searched for a free address.
const maxHosts = 1 << 16

// state is the content of leases.json: everything that must survive the
// processes that use a network.
type state struct {
	Subnets []netip.Prefix `json:"subnets"`
	MTU     int            `json:"mtu"`
	// Next is where the search for a free host number goes on, so that an
	// address just freed is not handed out again at once.
	Next   uint64            `json:"next"`
	Leases map[string]*lease `json:"leases"`
}

type lease struct {
	Kind      string         `json:"kind"`
	Host      uint64         `json:"host"`
	Addrs     []netip.Prefix `json:"addrs"`
	MAC       string         `json:"mac"`
	Interface string         `json:"interface"`
	// Netns is the name under netnsDir, for pods only.
	Netns string `json:"netns,omitempty"`
}

func (n *Network) statePath() string { return filepath.Join(n.cfg.StateDir, "leases.json") }

func (n *Network) load() (*state, error) {
	st := &state{}
	if err := statefile.Read(n.statePath(), st); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network %s: %w", n.cfg.Bridge, err)
	}
	if st.Leases == nil {
		st.Leases = map[string]*lease{}
	}
	return st, nil
}

func (n *Network) save(st *state) error { return statefile.Write(n.statePath(), st) }

// adopt makes the configuration that of the state, which is only possible
// while no lease was given under another.
func (n *Network) adopt(st *state) error {
	if len(st.Leases) == 0 {
		st.Subnets, st.MTU = n.cfg.Subnets, n.mtu()
		return nil
	}
	if !slices.Equal(st.Subnets, n.cfg.Subnets) {
		return fmt.Errorf("network %s is in use with subnets %v and cannot change to %v before its %d ports are gone",
			n.cfg.Bridge, st.Subnets, n.cfg.Subnets, len(st.Leases))
	}
	return nil
}

// grant returns the lease of id, a new one if there is none.
func (n *Network) grant(st *state, id, kind string) (*lease, error) {
	host, err := st.freeHost()
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", n.cfg.Bridge, err)
	}
	l := &lease{Kind: kind, Host: host, MAC: st.freeMAC(id)}
	for _, subnet := range st.Subnets {
		l.Addrs = append(l.Addrs, netip.PrefixFrom(hostAddr(subnet, host), subnet.Bits()))
	}
	l.Interface = interfacePrefix[kind] + digest(n.cfg.Bridge, id)[:11]
	if kind == kindNetns {
		l.Netns = n.cfg.Bridge + "-" + digest(n.cfg.Bridge, id)[:12]
	}
	st.Next = host + 1
	st.Leases[id] = l
	return l, nil
}

func (st *state) freeHost() (uint64, error) {
	used := map[uint64]bool{}
	for _, l := range st.Leases {
		used[l.Host] = true
	}
	last := lastHost(st.Subnets)
	const first = 2 // 0 is the network, 1 the gateway
	for range last {
		if st.Next < first || st.Next > last {
			st.Next = first
		}
		if !used[st.Next] {
			return st.Next, nil
		}
		st.Next++
	}
	return 0, fmt.Errorf("%w: all %d addresses of %v are taken", ErrFull, last-1, st.Subnets)
}

// lastHost is the largest host number that every subnet has, less the
// broadcast address.
func lastHost(subnets []netip.Prefix) uint64 {
	last := uint64(maxHosts)
	for _, subnet := range subnets {
		if bits := subnet.Addr().BitLen() - subnet.Bits(); bits < 16 {
			last = min(last, 1<<bits-2)
		}
	}
	return last
}

// freeMAC returns a locally administered address (IEEE 802, section 8.4) that
// depends on the id alone unless two ids clash.
func (st *state) freeMAC(id string) string {
	used := map[string]bool{}
	for _, l := range st.Leases {
		used[l.MAC] = true
	}
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", salt, id))
		mac := net.HardwareAddr{0x02, 0x6f, 0x74, sum[0], sum[1], sum[2]}.String()
		if !used[mac] {
			return mac
		}
	}
}

// hostAddr is address number host of a subnet.
func hostAddr(subnet netip.Prefix, host uint64) netip.Addr {
	if subnet.Addr().Is4() {
		raw := subnet.Addr().As4()
		binary.BigEndian.PutUint32(raw[:], binary.BigEndian.Uint32(raw[:])+uint32(host))
		return netip.AddrFrom4(raw)
	}
	raw := subnet.Addr().As16()
	low := binary.BigEndian.Uint64(raw[8:])
	binary.BigEndian.PutUint64(raw[8:], low+host)
	return netip.AddrFrom16(raw)
}

// Interface names are a prefix by kind and 11 hex digits: 14 characters.
var interfacePrefix = map[string]string{kindTap: "ort", kindNetns: "orp"}

func digest(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%s\x00", part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
