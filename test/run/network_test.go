// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// A server outside, in a namespace of its own behind the node.
const (
	outsideV4 = "198.51.100.2" // TEST-NET-2 (RFC 5737)
	outsideV6 = "2001:db8::2"  // documentation prefix (RFC 3849)
)

// outside makes the server's namespace: a veth pair to the node, no route to
// pods, so that what arrives has come through NAT. The server sends and receives
// streams, and returns datagrams.
func outside(t *testing.T) *server {
	t.Helper()
	stand.Run(t, "ip", "netns", "add", "outside")
	t.Cleanup(func() {
		// Sockets may keep the namespace, and with it the veth pair, for a while.
		stand.Run(t, "ip", "link", "del", "out0")
		stand.Run(t, "ip", "netns", "del", "outside")
	})
	for _, args := range []string{
		"link add out0 type veth peer name eth0 netns outside",
		"addr add 198.51.100.1/24 dev out0",
		"addr add 2001:db8::1/64 dev out0 nodad",
		"link set out0 up",
		"-n outside addr add " + outsideV4 + "/24 dev eth0",
		"-n outside addr add " + outsideV6 + "/64 dev eth0 nodad",
		"-n outside link set eth0 up",
		"-n outside link set lo up",
	} {
		stand.Run(t, "ip", strings.Fields(args)...)
	}
	return startServer(t)
}

// server counts what it gets; all of it runs in the namespace "outside".
type server struct {
	received chan string
}

var streamBytes = tier.Size(16<<20, 100<<20)

// startServer listens in the namespace: sockets stay in the namespace of the
// thread that made them.
func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{received: make(chan string, 16)}
	in(t, "outside", func() {
		for _, address := range []string{outsideV4, "[" + outsideV6 + "]"} {
			serve(t, address+":7001", s.sink)
			serve(t, address+":7002", s.source)
			echo(t, address+":7003")
			names(t, address+":53")
		}
	})
	return s
}

// in runs f on a thread that is in the named network namespace.
func in(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		// The thread is not handed back: it ends with the goroutine.
		runtime.LockOSThread()
		ns, err := netns.GetFromName(name)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, address string, handle func(net.Conn)) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); handle(c) }()
		}
	}()
}

func (s *server) sink(c net.Conn) {
	hash := sha256.New()
	n, _ := io.Copy(hash, c)
	s.received <- fmt.Sprintf("%d %x", n, hash.Sum(nil))
}

func (s *server) source(c net.Conn) {
	io.Copy(c, io.LimitReader(zeros{}, streamBytes))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func echo(t *testing.T, address string) {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, peer, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo(buf[:n], peer)
		}
	}()
}

// names replies to every DNS question of type A with 198.51.100.2 (RFC 1035, 4.1).
func names(t *testing.T, address string) {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, peer, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := nameReply(buf[:n]); reply != nil {
				conn.WriteTo(reply, peer)
			}
		}
	}()
}

func nameReply(query []byte) []byte {
	if len(query) < 17 {
		return nil
	}
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	if end += 5; end > len(query) {
		return nil
	}
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if query[end-3] != 1 { // not A: no such record
		return reply
	}
	reply[7] = 1
	return append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 51, 100, 2)
}

func TestPodNetwork(t *testing.T) {
	n := newNode(t)
	far := outside(t)
	first, second := n.newPod(t, "first"), n.newPod(t, "second")
	sleeper := podclient.ContainerSpec{Name: "sleeper", Image: n.registry.WithNettool, Args: []string{"sleep", "1000000"}}
	client, _, _ := first.containerWith(t, sleeper, nil)
	peer, _, _ := second.containerWith(t, sleeper, nil)

	t.Run("Interface", func(t *testing.T) { interfaceInGuest(t, first, client) })
	for _, family := range []struct{ name, outside, pod string }{
		{"IPv4", outsideV4, second.port.Addrs[0].Addr().String()},
		{"IPv6", outsideV6, second.port.Addrs[1].Addr().String()},
	} {
		t.Run("Outside/"+family.name, func(t *testing.T) { streams(t, client, far, family.outside) })
		t.Run("PodToPod/"+family.name, func(t *testing.T) { podToPod(t, client, peer, family.pod) })
		t.Run("PathMTU/"+family.name, func(t *testing.T) { pathMTU(t, client, family.outside) })
	}
	t.Run("DNS", func(t *testing.T) {
		if out := mustRun(t, client, "nettool", "lookup", "server"); out != "198.51.100.2\n" {
			t.Errorf("the name of the server is %q", out)
		}
	})
}

// TestEncryptedTunnel is TestPodNetwork with -tunnel-type tls, over the end of an adaptor.
func TestEncryptedTunnel(t *testing.T) {
	n := newNode(t, "-tunnel-type=tls")
	far := outside(t)
	p := n.newPod(t, "encrypted")
	client, _, _ := p.containerWith(t, podclient.ContainerSpec{Name: "sleeper", Image: n.registry.WithNettool, Args: []string{"sleep", "1000000"}}, nil)
	interfaceInGuest(t, p, client)
	for family, address := range map[string]string{"IPv4": outsideV4, "IPv6": outsideV6} {
		t.Run("Outside/"+family, func(t *testing.T) { streams(t, client, far, address) })
		t.Run("PathMTU/"+family, func(t *testing.T) { pathMTU(t, client, address) })
	}
	n.adaptor.Stop(syscall.SIGKILL)
	t.Run("WithoutAdaptor", func(t *testing.T) { streams(t, client, far, outsideV4) })
	n.adaptor = n.adaptor.Restart(t)
	t.Run("NewAdaptor", func(t *testing.T) { streams(t, client, far, outsideV6) })
	p.stop(t)
	n.wantNothingLeft(t)
}

func interfaceInGuest(t *testing.T, p *pod, c *podclient.Container) {
	out := mustRun(t, c, "ip", "addr", "show", "eth0")
	for _, addr := range p.port.Addrs {
		if !strings.Contains(out, addr.String()) {
			t.Errorf("eth0 in the VM lacks %v:\n%s", addr, out)
		}
	}
	if !strings.Contains(out, p.port.MAC.String()) {
		t.Errorf("eth0 in the VM lacks the pod's MAC %v:\n%s", p.port.MAC, out)
	}
	if want := fmt.Sprintf("mtu %d ", stand.PodMTU); !strings.Contains(out, want) {
		t.Errorf("eth0 in the VM lacks %q:\n%s", want, out)
	}
}

// sumOfStream is "BYTES SHA256" of what a stream carries.
func sumOfStream() string {
	hash := sha256.New()
	io.Copy(hash, io.LimitReader(zeros{}, streamBytes))
	return fmt.Sprintf("%d %x", streamBytes, hash.Sum(nil))
}

// streams sends and receives 100 MB by TCP.
func streams(t *testing.T, c *podclient.Container, far *server, address string) {
	mustRun(t, c, "nettool", "send", net.JoinHostPort(address, "7001"), fmt.Sprint(streamBytes))
	if got := <-far.received; got != sumOfStream() {
		t.Errorf("what arrived outside is %s, sent was %s", got, sumOfStream())
	}
	if out := mustRun(t, c, "nettool", "receive", net.JoinHostPort(address, "7002")); strings.TrimSpace(out) != sumOfStream() {
		t.Errorf("what arrived in the pod is %s, sent was %s", out, sumOfStream())
	}
}

func podToPod(t *testing.T, client, peer *podclient.Container, address string) {
	process, err := peer.Exec(t.Context(), podclient.ExecSpec{Args: []string{"nettool", "listen", "7004"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	process.Stream(podclient.IO{Stdout: out, Stderr: out})
	out.wait(t, "listening\n")
	mustRun(t, client, "nettool", "send", net.JoinHostPort(address, "7004"), fmt.Sprint(streamBytes))
	if code, err := process.Wait(t.Context()); err != nil || code != 0 {
		t.Fatalf("receiver: exit code %d, %v", code, err)
	}
	if want := "listening\n" + sumOfStream() + "\n"; out.String() != want {
		t.Errorf("the other pod printed %q, want %q", out, want)
	}
}

// pathMTU proves that a packet of the whole MTU passes in both directions
// unfragmented, which a plain ping does not show, and that a larger one is
// refused at its source instead of being lost on the way.
func pathMTU(t *testing.T, c *podclient.Container, address string) {
	header := 20 + 8 // IPv4 and UDP
	if strings.Contains(address, ":") {
		header = 40 + 8
	}
	full := stand.PodMTU - header
	if out, code := run(t, c, "nettool", "datagram", net.JoinHostPort(address, "7003"), fmt.Sprint(full)); code != 0 {
		t.Errorf("a datagram that fills the MTU does not come back: %s", out)
	}
	if out, code := run(t, c, "nettool", "datagram", net.JoinHostPort(address, "7003"), fmt.Sprint(full+1)); code == 0 || !strings.Contains(out, "message too long") {
		t.Errorf("a datagram of one byte more: exit code %d, %s", code, out)
	}
}
