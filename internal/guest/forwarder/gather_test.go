// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// countedConn counts system calls that write.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// secured returns both ends of a TLS connection over loopback, the near one as
// the forwarder makes it.
func secured(t *testing.T) (near net.Conn, counted *countedConn, far *tls.Conn) {
	t.Helper()
	bundle, err := podtls.NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(bundle.ServerCertPEM, bundle.ServerKeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	counted = &countedConn{Conn: server}
	shaken := make(chan error, 1)
	go func() { shaken <- far.Handshake() }()
	f := newForwarder(t, func(o *Options) { o.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}} })
	if near, err = f.handshake(t.Context(), counted); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); near.Close() })
	return near, counted, far
}

func TestRecordsOfAFrameGoOutTogether(t *testing.T) {
	near, counted, far := secured(t)
	for _, size := range []int{1, 32794, gatherLimit - 1, 1 << 20} {
		data := bytes.Repeat([]byte{byte(size), 2, 3, 5, 7}, size/5+1)[:size]
		got := make([]byte, size)
		read := make(chan error, 1)
		go func() { _, err := io.ReadFull(far, got); read <- err }()
		before := counted.writes.Load()
		if n, err := near.Write(data); n != size || err != nil {
			t.Fatalf("wrote %d of %d: %v", n, size, err)
		}
		if err := <-read; err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes arrived changed: %v", size, err)
		}
		// A connection's first records are small, so their overhead is not.
		if writes := counted.writes.Load() - before; writes > int64(size*11/10/gatherLimit+1) {
			t.Errorf("%d bytes took %d writes", size, writes)
		}
	}
}

func TestCloseEndsAWriteThatNobodyReads(t *testing.T) {
	near, _, _ := secured(t)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := near.Write(make([]byte, gatherLimit/2)); err != nil {
				ended <- err
				return
			}
		}
	}()
	for near.(*secureConn).records.mu.TryLock() { // until a write holds it for long
		near.(*secureConn).records.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
	near.Close()
	select {
	case <-ended:
	case <-time.After(4 * time.Second): // below the 5 s that tls.Conn gives its last alert
		t.Error("the write goes on")
	}
}
