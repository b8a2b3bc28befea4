// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// server runs the server on an address of its own of the loopback network.
func server(t *testing.T, host string) string {
	t.Helper()
	probe, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	go serve(address) // ends with the test's process
	return address
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestClients(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			address := server(t, host)
			if _, err := echo(within(t, time.Minute), address); err != nil { // it listens
				t.Fatal(err)
			}
			for name, c := range map[string]struct {
				client func(context.Context, string) (string, error)
				want   string
			}{
				Echo: {echo, address + " in "}, Connect: {connect, address}, MTU: {mtu, " bytes, the MTU of the route"}, Throughput: {throughput, " Mbit/s"},
			} {
				got, err := c.client(within(t, time.Minute), address)
				if err != nil || !strings.Contains(got, c.want) {
					t.Errorf("%s: %q, %v", name, got, err)
				}
			}
		})
	}
}

// TestClientsOfNobody: each says what fails, refused is content.
func TestClientsOfNobody(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for name, client := range map[string]func(context.Context, string) (string, error){Echo: echo, Connect: connect, MTU: mtu, Throughput: throughput} {
		if got, err := client(within(t, 500*time.Millisecond), address); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, err := refused(within(t, time.Minute), address); err != nil || !strings.Contains(got, "refused") {
		t.Errorf("refused: %q, %v", got, err)
	}
	there := server(t, "127.0.0.1")
	if _, err := echo(within(t, time.Minute), there); err != nil { // it listens
		t.Fatal(err)
	}
	if got, err := refused(within(t, 500*time.Millisecond), there); err == nil {
		t.Errorf("refused, where somebody is: %q", got)
	}
	if got, err := lookup(within(t, time.Second), "nobody.invalid"); err == nil {
		t.Errorf("lookup: %q", got)
	}
}

// TestMTUOfANarrowPath: the way loses what is longer than 1400 bytes and says nothing.
func TestMTUOfANarrowPath(t *testing.T) {
	t.Parallel()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	go func() {
		buffer := make([]byte, 1<<16)
		for n, from, err := packets.ReadFrom(buffer); err == nil; n, from, err = packets.ReadFrom(buffer) {
			if n+headers4 <= 1400 {
				packets.WriteTo(buffer[:n], from)
			}
		}
	}()
	got, err := largest(t.Context(), packets.LocalAddr().String(), 50*time.Millisecond)
	if err == nil || !strings.HasSuffix(err.Error(), "packets of more than 1400 bytes are lost") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEchoWantsItsOwnBytes: a server that accepts and says something else is not the right one.
func TestEchoWantsItsOwnBytes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Write([]byte(strings.Repeat("x", 100)))
		}
	}()
	if got, err := echo(within(t, time.Second), l.Addr().String()); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestExitCodes(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Main([]string{Lookup, "localhost"}, &out, &errs); code != 0 || out.Len() == 0 {
		t.Errorf("exit code %d, %q, %q", code, &out, &errs)
	}
	for _, args := range [][]string{nil, {Serve, "x"}, {"fly", "x"}, {Echo}} {
		if code := Main(args, &out, &errs); code != 1 || !strings.Contains(errs.String(), "usage: agent-relay connectivity") {
			t.Errorf("%v: exit code %d, %q", args, code, &errs)
		}
	}
}
