// SPDX-License-Identifier: Apache-2.0

package podtls

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
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

// secured returns both ends of a TLS connection over loopback, the near one a
// Conn.
func secured(t *testing.T) (near *Conn, counted *countedConn, far *tls.Conn) {
	t.Helper()
	bundle, err := NewBundle("vm", time.Now())
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
	secure := Server(counted, &tls.Config{Certificates: []tls.Certificate{certificate}, DynamicRecordSizingDisabled: true})
	if err := secure.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); secure.Close() })
	return secure, counted, far
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
	for near.records.mu.TryLock() { // until a write holds it for long
		near.records.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
	near.Close()
	select {
	case <-ended:
	case <-time.After(4 * time.Second): // below the 5 s that tls.Conn gives its last alert
		t.Error("the write goes on")
	}
}

// TestWriteShakesHands: a first write is not held back with the handshake that it begins.
func TestWriteShakesHands(t *testing.T) {
	bundle, err := NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ServerConfig(ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ClientConfig(ClientOptions{ServerName: "vm", CAPEM: bundle.CAPEM, CertPEM: bundle.ClientCertPEM, KeyPEM: bundle.ClientKeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	deadline := time.Now().Add(time.Minute)
	near.SetDeadline(deadline)
	far.SetDeadline(deadline)
	written := make(chan error, 1)
	go func() {
		_, err := Server(near, server).Write([]byte("x"))
		written <- err
	}()
	conn := Client(far, client)
	conn.ReadAhead(1 << 10)
	if n, err := conn.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
