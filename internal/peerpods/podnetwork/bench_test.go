// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// benchSize is what one measurement carries.
const benchSize = 512 << 20

// BenchmarkPodPath compares one TCP stream between node and pod with one over
// the bare underlay, in turns, so that both see the same load. Run it with
// -benchtime=10x: it reports medians over the iterations.
func BenchmarkPodPath(b *testing.B) {
	for _, underlay6 := range []bool{false, true} {
		for _, mtu := range []int{1500, 9000} {
			for _, toPod := range []bool{true, false} {
				b.Run(fmt.Sprintf("underlay6=%v/mtu=%d/toPod=%v", underlay6, mtu, toPod), func(b *testing.B) {
					o := podOptions{attach: ptp, underlay6: underlay6, underlayMTU: mtu, podMTU: mtu}
					benchPath(b, o, toPod)
				})
			}
		}
	}
}

func benchPath(b *testing.B, o podOptions, toPod bool) {
	l := newLab(b)
	pod, inside := l.newPod(o)
	nodePod := netip.MustParseAddr("10.244.1.1")
	var bare, path []float64
	for b.Loop() {
		if toPod {
			bare = append(bare, l.node.throughput(pod.vm, pod.vmAddr))
			path = append(path, l.node.throughput(inside, pod.ip4))
		} else {
			bare = append(bare, pod.vm.throughput(l.node, pod.vmAddr.Prev()))
			path = append(path, inside.throughput(l.node, nodePod))
		}
	}
	b.ReportMetric(median(bare), "bare-Gbit/s")
	b.ReportMetric(median(path), "pod-Gbit/s")
	b.ReportMetric(100*median(path)/median(bare), "%-of-bare")
}

// BenchmarkEncryptedPath compares one TCP stream to and from the pod through an
// encrypted tunnel with one through a plain tunnel, in turns.
func BenchmarkEncryptedPath(b *testing.B) {
	for _, toPod := range []bool{true, false} {
		b.Run(fmt.Sprintf("toPod=%v", toPod), func(b *testing.B) {
			l := newLab(b)
			nodePod := netip.MustParseAddr("10.244.1.1")
			measure := func(o podOptions) func() float64 {
				pod, inside := l.newPod(o)
				if toPod {
					return func() float64 { return l.node.throughput(inside, pod.ip4) }
				}
				return func() float64 { return inside.throughput(l.node, nodePod) }
			}
			plain, encrypted := measure(podOptions{attach: ptp}), measure(podOptions{attach: ptp, tls: true})
			var without, with []float64
			for b.Loop() {
				without, with = append(without, plain()), append(with, encrypted())
			}
			b.ReportMetric(median(without), "plain-Gbit/s")
			b.ReportMetric(median(with), "encrypted-Gbit/s")
			b.ReportMetric(100*median(with)/median(without), "%-of-plain")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// throughput sends benchSize bytes to server and returns Gbit/s.
func (n *testNS) throughput(server *testNS, addr netip.Addr) float64 {
	n.t.Helper()
	listener := server.listen(addr)
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 1<<20))
		}
		received <- err
	}()
	conn, err := n.dial(listener.Addr().String())
	if err != nil {
		n.t.Fatal(err)
	}
	start := time.Now()
	err = sendStream(conn, benchSize)
	conn.Close()
	if err == nil {
		err = <-received
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return benchSize * 8 / time.Since(start).Seconds() / 1e9
}
