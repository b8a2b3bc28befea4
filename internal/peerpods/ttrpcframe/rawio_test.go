// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tcpPair returns both ends of a TCP connection.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestRawIO(t *testing.T) {
	t.Parallel()
	for network, pair := range map[string]func(*testing.T) (near, far net.Conn){"unix": pair, "tcp": tcpPair} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(t *testing.T, raw, far net.Conn){
				"a writer is held back, and nothing is lost": rawBackpressure,
				"a read waits for data, and ends at the end": rawReadWaits,
				"deadlines":                             rawDeadlines,
				"its close ends a read and a write":     rawClose,
				"the end of the peer is a common error": rawBroken,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					near, far := pair(t)
					raw := RawIO(near)
					if _, ok := raw.(*rawConn); !ok {
						t.Fatalf("a %T is returned as it is", near)
					}
					test(t, raw, far)
				})
			}
		})
	}
}

func rawBackpressure(t *testing.T, raw, far net.Conn) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than sockets hold
	go func() {
		raw.Write(sent)
		raw.(*rawConn).CloseWrite()
	}()
	if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d arrive, %v", len(got), len(sent), err)
	}
}

func rawReadWaits(t *testing.T, raw, far net.Conn) {
	if n, err := raw.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read: %d, %v", n, err)
	}
	got := make(chan []byte, 1)
	go func() { all, _ := io.ReadAll(raw); got <- all }()
	far.Write([]byte("one"))
	far.Write([]byte("two"))
	far.Close()
	if all := <-got; string(all) != "onetwo" {
		t.Errorf("read %q", all)
	}
}

func rawDeadlines(t *testing.T, raw, _ net.Conn) {
	raw.SetDeadline(time.Now().Add(-time.Second))
	_, err := raw.Read(make([]byte, 1))
	if network := net.Error(nil); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("read: %v", err)
	}
	if _, err := raw.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
}

func rawClose(t *testing.T, raw, _ net.Conn) {
	ended := make(chan error, 2)
	go func() { _, err := raw.Read(make([]byte, 1)); ended <- err }()
	go func() { _, err := raw.Write(make([]byte, 32<<20)); ended <- err }()
	raw.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("ended with %v", err)
		}
	}
}

func rawBroken(t *testing.T, raw, far net.Conn) {
	raw.Write([]byte("unread"))
	far.Close()
	var err error
	for err == nil {
		_, err = raw.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("write: %v", err)
	}
	if !strings.HasPrefix(err.Error(), "write "+raw.LocalAddr().Network()) {
		t.Errorf("the error does not say what failed: %v", err)
	}
}

func TestRawIONeedsNoMemoryForACall(t *testing.T) {
	near, far := pair(t)
	raw, echo := RawIO(near), RawIO(far)
	message, got := []byte("message"), make([]byte, 7)
	n := testing.AllocsPerRun(100, func() {
		raw.Write(message)
		echo.Read(got)
	})
	if n > 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
}

func TestRawIOOfAnotherConnection(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if RawIO(near) != near {
		t.Error("a connection without a descriptor is wrapped")
	}
}
