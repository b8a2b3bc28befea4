// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func node(pods string, addresses ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: pods}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestSort(t *testing.T) {
	n := &network{address: netip.MustParseAddr("172.18.0.11")}
	own, peers := n.sort([]*corev1.Node{
		node("192.168.2.0/24", "fd00::1", "172.18.0.13"),
		node("", "172.18.0.14"),               // has no pods yet
		node("192.168.4.0/24"),                // nor an address
		node("fd00:1::/64", "fd00::2"),        // no IPv4
		node("192.168.0.0/24", "172.18.0.11"), // this one
		node("192.168.1.0/24", "172.18.0.12"),
	})
	if own != netip.MustParsePrefix("192.168.0.0/24") {
		t.Errorf("own pods %s", own)
	}
	want := []peer{
		{netip.MustParsePrefix("192.168.1.0/24"), netip.MustParseAddr("172.18.0.12")},
		{netip.MustParsePrefix("192.168.2.0/24"), netip.MustParseAddr("172.18.0.13")},
	}
	if diff := cmp.Diff(want, peers, cmp.AllowUnexported(peer{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("peers (-want +got):\n%s", diff)
	}
}

func TestResolverForPods(t *testing.T) {
	own := netip.MustParseAddr("172.18.0.11")
	for name, c := range map[string]struct{ text, want, local string }{
		"the engine's":   {"search x\nnameserver 127.0.0.11\noptions ndots:0\n", "search x\nnameserver 172.18.0.11\noptions ndots:0\n", "127.0.0.11"},
		"another":        {"nameserver 10.0.0.1\n", "nameserver 10.0.0.1\n", ""},
		"two local ones": {"nameserver 127.0.0.53\nnameserver ::1\n", "nameserver 172.18.0.11\n", "127.0.0.53"},
		"none":           {"# nothing\n", "# nothing\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, local := resolverForPods(c.text, own); got != c.want || local != c.local {
				t.Errorf("%q and %q, want %q and %q", got, local, c.want, c.local)
			}
		})
	}
}

// echo returns whatever it is asked, by UDP and TCP, and where.
func echo(t *testing.T) string {
	var streams net.Listener
	var packets net.PacketConn
	at := onFreePort(t, func(at string) (err error) {
		if streams, err = net.Listen("tcp", at); err != nil {
			return err
		}
		if packets, err = net.ListenPacket("udp", at); err != nil {
			streams.Close()
		}
		return err
	})
	t.Cleanup(func() { streams.Close(); packets.Close() })
	go func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); io.Copy(conn, conn) }()
		}
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			size, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			packets.WriteTo(buffer[:size], from)
		}
	}()
	return at
}

// onFreePort listens at a port that is free for TCP and UDP. That of a server
// that has just ended is, unless another process is faster.
func onFreePort(t *testing.T, listen func(at string) error) (at string) {
	t.Helper()
	var err error
	for range 20 {
		free, fails := net.Listen("tcp", "127.0.0.1:0")
		if fails != nil {
			t.Fatal(fails)
		}
		at = free.Addr().String()
		free.Close()
		if err = listen(at); err == nil {
			return at
		}
	}
	t.Fatal(err)
	return ""
}

func TestForwardNames(t *testing.T) {
	server := echo(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at := onFreePort(t, func(at string) error { return forwardNames(ctx, at, server, slog.New(slog.DiscardHandler)) })
	for _, transport := range []string{"udp", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			conn, err := net.Dial(transport, at)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := conn.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, len("question"))
			if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "question" {
				t.Errorf("answer %q, %v", answer, err)
			}
		})
	}
}
