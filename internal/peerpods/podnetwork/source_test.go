// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestTunnelTakesOnlyItsOtherEnd guards pods from hosts of the underlay: VXLAN
// itself takes a packet from anybody who knows the VNI.
func TestTunnelTakesOnlyItsOtherEnd(t *testing.T) {
	for _, c := range []struct{ underlay6, prepared bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprintf("underlay6=%v,prepared=%v", c.underlay6, c.prepared), func(t *testing.T) {
			l := newLab(t)
			pod := l.addPod(podOptions{attach: onBridge, underlay6: c.underlay6})
			if c.prepared {
				pod.vm.must(PrepareGuest)
				pod.vm.run("", "nft", "list", "chain", "inet", rulesTable, "input")
			}
			inside := pod.connect()
			node, foreign := pod.cfg.WorkerNodeIP.Addr(), pod.neighbour()

			// What another host on the VM's network sends to either end.
			for end, at := range map[string]struct {
				to   netip.Addr
				seen *testNS
			}{
				"node": {node, pod.ns}, "VM": {pod.vmAddr, inside},
			} {
				before := at.seen.received()
				for range 50 {
					foreign.inject(at.to, pod.cfg.VXLANID)
				}
				if got := at.seen.received() - before; got > 25 { // the pod's own multicasts apart
					t.Errorf("%s: packets of another host came through, %d of 50", end, got)
				}
			}
			// The same packets from the right address do come through, so the test can see.
			before := pod.ns.received()
			pod.vm.inject(node, pod.cfg.VXLANID)
			deadline := time.Now().Add(ioDeadline)
			for pod.ns.received() == before {
				if time.Now().After(deadline) {
					t.Fatal("not even the VM's packets come through")
				}
				time.Sleep(time.Millisecond)
			}
			mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
		})
	}
}

// TestForeignTunnelsKeepTheirPort: others on the node use VXLAN's port too.
func TestForeignTunnelsKeepTheirPort(t *testing.T) {
	l := newLab(t)
	pod, _ := l.newPod(podOptions{attach: onBridge})
	foreign, other := pod.neighbour(), strconv.Itoa(pod.cfg.VXLANID+1)
	l.node.ip("link add overlay type vxlan id "+other+" dstport 4789 local "+pod.cfg.WorkerNodeIP.Addr().String(), "link set overlay up")
	before := l.node.packets("overlay")
	foreign.inject(pod.cfg.WorkerNodeIP.Addr(), pod.cfg.VXLANID+1)
	for deadline := time.Now().Add(ioDeadline); l.node.packets("overlay") == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a packet for another tunnel on the same port was dropped")
		}
	}
}

// TestTunnelWithoutSourceCheck is what -use-public-ip needs.
func TestTunnelWithoutSourceCheck(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	pod.cfg.SourceCheck = false
	pod.connect()
	foreign := pod.neighbour()
	before := pod.ns.received()
	foreign.inject(pod.cfg.WorkerNodeIP.Addr(), pod.cfg.VXLANID)
	for deadline := time.Now().Add(ioDeadline); pod.ns.received() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a packet was dropped that should pass")
		}
	}
}

// neighbour is another host on the network of the pod's VM and its node: the
// wire between the two becomes a bridge.
func (p *labPod) neighbour() *testNS {
	p.lab.t.Helper()
	host := newTestNS(p.lab.t)
	n := p.number
	p.vm.ip(
		"link add lan type bridge", "link set ens3 master lan", "link set lan up",
		"link add port type veth peer name eth0 netns "+host.path(), "link set port master lan up",
		"addr flush dev ens3",
		fmt.Sprintf("addr add 172.31.%d.2/24 dev lan", n), fmt.Sprintf("addr add fd31:%x::2/64 dev lan", n),
	)
	host.ip(fmt.Sprintf("addr add 172.31.%d.66/24 dev eth0", n), fmt.Sprintf("addr add fd31:%x::66/64 dev eth0", n), "link set eth0 up")
	host.settle()
	p.vm.settle()
	return host
}

// inject sends a broadcast frame of a pod into the tunnel with this VNI at to.
func (n *testNS) inject(to netip.Addr, vni int) {
	n.t.Helper()
	frame, _ := hex.DecodeString("ffffffffffff" + "020000000099" + "88b5" + strings.Repeat("00", 46))
	header := []byte{0x08, 0, 0, 0, byte(vni >> 16), byte(vni >> 8), byte(vni), 0} // RFC 7348, section 5
	n.must(func() error {
		conn, err := net.Dial("udp", netip.AddrPortFrom(to, 4789).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write(append(header, frame...))
		return err
	})
}

// received is how many packets have come out of the tunnel's end here.
func (n *testNS) received() int {
	n.t.Helper()
	for _, dev := range []string{nodeTunnelName, "eth0"} {
		if _, err := n.try("ip", "link", "show", "dev", dev, "type", "vxlan"); err == nil {
			return n.packets(dev)
		}
	}
	n.t.Fatal("there is no tunnel here")
	return 0
}

func (n *testNS) packets(dev string) (count int) {
	n.t.Helper()
	text := n.run("", "cat", "/proc/net/dev")
	for _, line := range strings.Split(text, "\n") {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), dev+":"); found {
			var bytes int
			fmt.Sscan(rest, &bytes, &count)
		}
	}
	return count
}
