// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestPodTraffic carries full-size streams and the largest datagrams between a
// pod and the outside, both ways, for each way to attach a pod, each family of
// the underlay and each family of the pod.
func TestPodTraffic(t *testing.T) {
	for _, attach := range []string{onBridge, ptp, calico} {
		for _, underlay6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/underlay6=%v", attach, underlay6), func(t *testing.T) {
				l := newLab(t)
				pod, inside := l.newPod(podOptions{attach: attach, underlay6: underlay6})
				trafficOutside(t, l, pod, inside, transferSize)
			})
		}
	}
	for _, o := range []podOptions{{attach: onBridge, tls: true}, {attach: ptp, underlay6: true, tls: true}, {attach: calico, underlayMTU: 1280, podMTU: 9000, tls: true}} {
		t.Run(fmt.Sprintf("tls/%s/underlay6=%v", o.attach, o.underlay6), func(t *testing.T) {
			l := newLab(t)
			pod, inside := l.newPod(o)
			if got, want := inside.mtuOf("eth0"), cmp.Or(o.podMTU, 1500); got != want {
				t.Errorf("MTU of the pod's interface in the VM: %d, want the %d of the pod", got, want)
			}
			trafficOutside(t, l, pod, inside, transferSize)
		})
	}
}

// TestTentativeAddress: a VM whose IPv6 address is not yet known to be its own
// sends from that address anyway.
func TestTentativeAddress(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: ptp, underlay6: true, slowAddress: true})
	if text, _ := pod.vm.try("ip", "-6", "addr", "show", "tentative"); !strings.Contains(string(text), pod.vmAddr.String()) {
		t.Fatalf("the VM's address %s is not tentative, so nothing is tested", pod.vmAddr)
	}
	inside := pod.connect()
	mustExchange(t, "pod to outside", inside, l.outside, netip.MustParseAddr(outside4), 1<<20)
}

// TestUnderlayMTUs: the same on a small and on a jumbo underlay, and the MTU
// that the pod gets.
func TestUnderlayMTUs(t *testing.T) {
	for _, c := range []struct{ underlay, pod, want4, want6 int }{
		{1500, 1500, 1450, 1430},
		{1400, 1500, 1350, 1330},
		{9000, 1500, 1500, 1500},
		{9000, 9000, 8950, 8930},
	} {
		for _, underlay6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("underlay=%d/pod=%d/underlay6=%v", c.underlay, c.pod, underlay6), func(t *testing.T) {
				l := newLab(t)
				l.node.ip(fmt.Sprintf("link set out0 mtu %d", max(1500, c.pod)))
				l.outside.ip(fmt.Sprintf("link set eth0 mtu %d", max(1500, c.pod)))
				pod, inside := l.newPod(podOptions{attach: ptp, underlay6: underlay6, underlayMTU: c.underlay, podMTU: c.pod})
				want := c.want4
				if underlay6 {
					want = c.want6
				}
				if got := inside.mtuOf("eth0"); got != want {
					t.Errorf("MTU of the pod's interface in the VM: %d, want %d", got, want)
				}
				trafficOutside(t, l, pod, inside, 8<<20) // thousands of packets of each size; TestPodTraffic sends many
				for _, ip := range []netip.Addr{pod.ip4, pod.ip6} {
					if want == max(1500, c.pod) {
						continue // nothing on the way is smaller, and the datagrams above filled it
					}
					if got := l.outside.pathMTU(ip, max(1500, c.pod)); got != want {
						t.Errorf("path MTU from outside to %s: %d, want %d", ip, got, want)
					}
				}
			})
		}
	}
}

func trafficOutside(t *testing.T, l *lab, pod *labPod, inside *testNS, size int) {
	t.Helper()
	defer pod.explain(t, inside)
	for _, c := range []struct{ pod, outside netip.Addr }{
		{pod.ip4, netip.MustParseAddr(outside4)},
		{pod.ip6, netip.MustParseAddr(outside6)},
	} {
		if t.Failed() {
			return // what follows would only wait without result, once for each size
		}
		mustExchange(t, "pod to outside", inside, l.outside, c.outside, size)
		mustExchange(t, "outside to pod", l.outside, inside, c.pod, size)
		mustEcho(t, "pod to outside", inside, l.outside, c.outside)
		mustEcho(t, "outside to pod", l.outside, inside, c.pod)
		mustEcho(t, "node to pod", l.node, inside, c.pod)
	}
}

// TestPodToPod: two pods, each with a VM of its own, on one bridge and routed.
func TestPodToPod(t *testing.T) {
	for _, attach := range []string{onBridge, ptp} {
		for _, underlay6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/underlay6=%v", attach, underlay6), func(t *testing.T) {
				l := newLab(t)
				_, a := l.newPod(podOptions{attach: attach, underlay6: underlay6})
				pod, b := l.newPod(podOptions{attach: attach, underlay6: underlay6})
				for _, ip := range []netip.Addr{pod.ip4, pod.ip6} {
					mustExchange(t, "pod to pod", a, b, ip, transferSize)
					mustEcho(t, "pod to pod", a, b, ip)
				}
			})
		}
	}
}

// TestBridgedNeighbour: an ordinary pod with MTU 1500 on the same bridge sends
// frames that no router sees. The tunnel itself must answer those too big.
func TestBridgedNeighbour(t *testing.T) {
	for underlay6, want := range map[bool]int{false: 1450, true: 1430} {
		t.Run(fmt.Sprintf("underlay6=%v", underlay6), func(t *testing.T) {
			l := newLab(t)
			pod, inside := l.newPod(podOptions{attach: onBridge, underlay6: underlay6})
			plain := l.addPod(podOptions{attach: onBridge}).ns
			for _, ip := range []netip.Addr{pod.ip4, pod.ip6} {
				mustExchange(t, "ordinary pod to pod", plain, inside, ip, transferSize)
				if got := plain.pathMTU(ip, 1500); got != want {
					t.Errorf("path MTU from an ordinary pod to %s: %d, want %d", ip, got, want)
				}
				mustEcho(t, "ordinary pod to pod", plain, inside, ip)
			}
		})
	}
}

// TestOneFamily: pods with IPv4 or IPv6 alone.
func TestOneFamily(t *testing.T) {
	for _, family := range []string{"-4", "-6"} {
		t.Run(family, func(t *testing.T) {
			l := newLab(t)
			pod := l.addPod(podOptions{attach: onBridge})
			pod.ns.run("", "ip", family, "addr", "flush", "dev", "eth0", "scope", "global")
			vni := pod.cfg.VXLANID
			pod.cfg = pod.inspect(pod.vmAddr.Prev())
			pod.cfg.VXLANID = vni
			ip, outside := pod.ip4, netip.MustParseAddr(outside4)
			if family == "-4" {
				ip, outside = pod.ip6, netip.MustParseAddr(outside6)
			}
			if len(pod.cfg.PodIPs) != 1 || pod.cfg.PodIP.Addr() != ip {
				t.Fatalf("addresses %v, want only %s", pod.cfg.PodIPs, ip)
			}
			inside := pod.connect()
			mustExchange(t, "pod to outside", inside, l.outside, outside, 1<<20)
			mustExchange(t, "outside to pod", l.outside, inside, ip, 1<<20)
		})
	}
}

func (n *testNS) mtuOf(dev string) (mtu int) {
	n.t.Helper()
	n.must(func() error {
		ns, err := currentNamespace()
		if err != nil {
			return err
		}
		defer ns.Close()
		link, err := ns.LinkByName(dev)
		if err == nil {
			mtu = link.Attrs().MTU
		}
		return err
	})
	return mtu
}
