// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// node is a Node with ranges of pods, separated by spaces.
func node(pods string, addresses ...string) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(pods)}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func peers(list ...string) (all []peer) {
	for _, text := range list {
		pods, via, _ := strings.Cut(text, " ")
		all = append(all, peer{netip.MustParsePrefix(pods), netip.MustParseAddr(via)})
	}
	return all
}

func TestSort(t *testing.T) {
	n := &network{addresses: []netip.Addr{netip.MustParseAddr("172.18.0.11"), netip.MustParseAddr("fd01::b")}}
	own, got := n.sort([]*corev1.Node{
		node("192.168.2.0/24", "fd01::d", "172.18.0.13"),
		node("", "172.18.0.14"),                                      // has no pods yet
		node("192.168.4.0/24"),                                       // nor an address
		node("fd00:5::/64", "172.18.0.15"),                           // nor one of the family
		node("192.168.0.0/24 fd00::/64", "fd01::b", "172.18.0.11"),   // this one
		node("192.168.1.0/24 fd00:1::/64", "172.18.0.12", "fd01::c"), // both families
		node("192.168.6.0/24 fd00:6::/64", "fd01::f"),                // IPv4 by IPv6
	})
	if !slices.Equal(own, []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24"), netip.MustParsePrefix("fd00::/64")}) {
		t.Errorf("own pods %s", own)
	}
	want := peers("192.168.1.0/24 172.18.0.12", "192.168.2.0/24 172.18.0.13", "192.168.6.0/24 fd01::f", "fd00:1::/64 fd01::c", "fd00:6::/64 fd01::f")
	if !slices.Equal(got, want) {
		t.Errorf("peers %v, want %v", got, want)
	}
}

// TestOwnAddresses: those that node-agent tells count, and what is none is an error.
func TestOwnAddresses(t *testing.T) {
	t.Setenv("NODE_IPS", "fd01::b,172.18.0.11")
	if got, err := ownAddresses(); err != nil || len(got) != 2 || got[0] != netip.MustParseAddr("fd01::b") {
		t.Errorf("%v, %v", got, err)
	}
	t.Setenv("NODE_IPS", "fd01::b,here")
	if _, err := ownAddresses(); err == nil || !strings.Contains(err.Error(), "NODE_IPS") {
		t.Error(err)
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
