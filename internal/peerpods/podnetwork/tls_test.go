// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// carrier is what relay and forwarder are for an encrypted tunnel, for one connection.
type carrier struct {
	client, server *tls.Config
	stop           context.CancelFunc
	ends           sync.WaitGroup
	// wire has what the node's end sent.
	wire *recorder
}

// recorder keeps the first bytes that are written to a connection.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	sent bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	if r.sent.Len() < 1<<20 {
		r.sent.Write(p)
	}
	r.mu.Unlock()
	return r.Conn.Write(p)
}

// carry begins to carry the frames of an encrypted tunnel. If it did already, both ends
// are given up and made again, as by processes that were killed.
func (p *labPod) carry() {
	t := p.lab.t
	t.Helper()
	if p.carrier != nil {
		p.carrier.close()
	}
	bundle, err := podtls.NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := &carrier{}
	p.carrier = c
	c.client, err = podtls.ClientConfig(podtls.ClientOptions{ServerName: "vm", CAPEM: bundle.CAPEM, CertPEM: bundle.ClientCertPEM, KeyPEM: bundle.ClientKeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	c.server, err = podtls.ServerConfig(podtls.ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	nodeFrames, err := OpenNodeFrames(p.ns.path())
	if err != nil {
		t.Fatal(err)
	}
	guestFrames, err := OpenGuestFrames(p.guestPath)
	if err != nil {
		t.Fatal(err)
	}
	listener := p.vm.listen(p.vmAddr)
	var plain net.Conn
	p.lab.node.must(func() (err error) {
		plain, err = net.Dial("tcp", listener.Addr().String())
		return err
	})
	c.wire = &recorder{Conn: plain}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	carry := func(frames *os.File, conn *podtls.Conn) {
		c.ends.Go(func() {
			defer frames.Close()
			if err := frametunnel.Carry(ctx, frames, conn); ctx.Err() == nil {
				t.Errorf("the tunnel ended: %v", err)
			}
		})
	}
	carry(nodeFrames, podtls.Client(c.wire, c.client))
	carry(guestFrames, podtls.Server(accepted, c.server))
	t.Cleanup(c.close)
}

func (c *carrier) close() {
	c.stop()
	c.ends.Wait()
}

// marker is what a pod sends, and nobody on the way may read.
var marker = bytes.Repeat([]byte("what the pod says to its peer "), 40)

// TestUnderlayShowsNothing captures what passes between node and VM.
func TestUnderlayShowsNothing(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		l := newLab(t)
		pod, inside := l.newPod(podOptions{attach: ptp, tls: encrypted})
		var wire *os.File
		pod.vm.must(func() error {
			link, err := net.InterfaceByName("ens3")
			if err == nil {
				wire, err = packetSocket(link.Index)
			}
			return err
		})
		defer wire.Close()
		say(t, inside, l.outside, netip.MustParseAddr(outside4))
		say(t, l.outside, inside, pod.ip4)
		if err := wire.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		frames, readable := 0, false
		for buf := make([]byte, 1<<17); ; frames++ {
			n, err := wire.Read(buf)
			if err != nil {
				break // nothing more comes
			}
			readable = readable || bytes.Contains(buf[:n], marker[:30])
		}
		if frames == 0 || readable == encrypted {
			t.Errorf("encrypted=%v: %d frames on the underlay, what the pod sends is readable: %v", encrypted, frames, readable)
		}
	}
}

// say sends the marker from client to server, and back.
func say(t *testing.T, client, server *testNS, addr netip.Addr) {
	t.Helper()
	listener := server.listen(addr)
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			io.Copy(conn, conn)
			conn.Close()
		}
	}()
	conn, err := client.dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(marker); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(marker))); err != nil {
		t.Fatal(err)
	}
}

// TestEncryptedTunnelTakesNoClearPackets: neither end of an encrypted tunnel has anything
// that would take a packet of a plain one, whoever sends it.
func TestEncryptedTunnelTakesNoClearPackets(t *testing.T) {
	l := newLab(t)
	pod, inside := l.newPod(podOptions{attach: onBridge, tls: true})
	node := pod.cfg.WorkerNodeIP.Addr()
	for _, c := range []struct {
		from, seen *testNS
		to         netip.Addr
		link       string
	}{{l.node, inside, pod.vmAddr, "eth0"}, {pod.vm, pod.ns, node, frameLinkName}} {
		before := c.seen.packets(c.link)
		for range 50 {
			c.from.inject(c.to, pod.cfg.VXLANID)
		}
		if got := c.seen.packets(c.link) - before; got > 25 { // others' multicasts apart
			t.Errorf("packets of a plain tunnel to %s came through, %d of 50", c.to, got)
		}
		if text, err := c.seen.try("ip", "link", "show", "type", "vxlan"); err != nil || len(text) > 0 {
			t.Errorf("there is a plain tunnel beside the encrypted one: %s %v", text, err)
		}
	}
	mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
}

// TestRecordedFramesAreNotTakenAgain sends the VM what the node has sent it before.
func TestRecordedFramesAreNotTakenAgain(t *testing.T) {
	l := newLab(t)
	pod, inside := l.newPod(podOptions{attach: ptp, tls: true})
	mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
	c := pod.carrier
	c.close()
	client, server := net.Pipe()
	frames, err := OpenGuestFrames(pod.guestPath)
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	go io.Copy(io.Discard, client)
	go func() {
		client.Write(c.wire.sent.Bytes())
		client.Close()
	}()
	before := inside.packets("eth0")
	if err := frametunnel.Carry(t.Context(), frames, podtls.Server(server, c.server)); err == nil {
		t.Error("a recorded connection was taken")
	}
	if got := inside.packets("eth0") - before; got > 5 { // of megabytes that were recorded
		t.Errorf("%d recorded frames reached the pod", got)
	}
}

// TestConnectionsOutliveTheTunnels: a pod's TCP connection goes on when relay and
// forwarder were replaced.
func TestConnectionsOutliveTheTunnels(t *testing.T) {
	l := newLab(t)
	pod, inside := l.newPod(podOptions{attach: onBridge, tls: true})
	listener := inside.listen(pod.ip6)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			io.Copy(conn, conn)
		}
	}()
	conn, err := l.outside.dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 {
		if _, err := conn.Write(marker); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, len(marker))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(pod.setupNode(), pod.setupGuest()); err != nil { // as they do when they start
			t.Fatal(err)
		}
		pod.carry()
	}
}

// TestGuestSeesNoOtherEnd: the pod has the interface that it had before, and no way to
// the tunnel's own.
func TestGuestSeesNoOtherEnd(t *testing.T) {
	l := newLab(t)
	pod, inside := l.newPod(podOptions{attach: ptp, tls: true})
	if text := inside.run("", "ip", "-br", "link"); bytes.Count([]byte(text), []byte("\n")) != 2 {
		t.Errorf("links in the pod: %s", text)
	}
	want, err := net.ParseMAC(pod.cfg.PodHwAddr)
	if err != nil {
		t.Fatal(err)
	}
	inside.must(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil && !bytes.Equal(link.HardwareAddr, want) {
			t.Errorf("MAC address %s, want %s", link.HardwareAddr, want)
		}
		return err
	})
}
