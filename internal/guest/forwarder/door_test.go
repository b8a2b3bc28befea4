// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// TestHalfHandshakes: anybody on the network can begin handshakes and never go
// on. They are few at a time, and the node comes in beside them.
func TestHalfHandshakes(t *testing.T) {
	bundle, err := podtls.NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	client, err := podtls.ClientConfig(podtls.ClientOptions{CAPEM: bundle.CAPEM, CertPEM: bundle.ClientCertPEM, KeyPEM: bundle.ClientKeyPEM, ServerName: "vm"})
	if err != nil {
		t.Fatal(err)
	}
	f := newForwarder(t, func(o *Options) {
		o.TLS = server
		o.Config = &apf.Config{PodNetwork: &podnetwork.Config{
			PodIP: netip.MustParsePrefix("10.0.0.2/24"), PodHwAddr: "02:00:00:00:00:01", Interface: "eth0", TunnelType: "vxlan",
			WorkerNodeIP: netip.MustParsePrefix("127.0.0.2/8"), MTU: 1500,
		}}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); <-done })

	const attempts = 10 * otherClients
	open := make([]net.Conn, 0, attempts)
	for range attempts {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		open = append(open, conn)
	}
	closed := make(chan bool, attempts)
	for _, conn := range open {
		go func() {
			_, err := io.Copy(io.Discard, conn)
			closed <- err == nil
		}()
	}
	for i := range attempts - otherClients {
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d connections were closed, want all but %d at once", i, attempts, otherClients)
		}
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Minute}, Config: client}
	conn, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("the node is kept out: %v", err)
	}
	conn.Close()
}
