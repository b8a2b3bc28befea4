// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseReadsWhatIsWritten(t *testing.T) {
	for _, c := range []Config{
		{Port: 6443},
		{Port: 443, Backends: []Backend{{"a", "10.0.0.1", 6443}, {"b-2", "some.host", 8443}}},
		{Port: 443, IPv6: true, Backends: []Backend{{"a", "fd00::a", 6443}, {"b", "fd00::b", 6443}}},
	} {
		got, err := Parse(strings.NewReader(c.HAProxy()))
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "bind",
		"bind *:x":                          "line 1",
		"bind 127.0.0.1:1":                  "*:PORT",
		"bind *:0":                          "*:PORT",
		"bind :::1":                         ":::PORT v4v6",
		"bind fd00::1:1 v4v6":               ":::PORT v4v6",
		"bind *:1\nbind *:2":                "line 2",
		"bind *:1\nserver a":                "server",
		"bind *:1\nserver a nowhere":        "server a",
		"bind *:1\nserver a 10.0.0.1:99999": "HOST:PORT",
		"bind *:1\nserver a;b 10.0.0.1:1":   "name",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// network is one in which servers come and go.
type network struct {
	mu sync.Mutex
	up map[string]bool
}

func (n *network) set(address string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[address] = up
}

// dial returns the address, and then what it is sent.
func (n *network) dial(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up[address] {
		return nil, errors.New("refused")
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := io.WriteString(far, address+"\n"); err == nil {
			io.Copy(far, far)
		}
	}()
	return near, nil
}

func serve(t *testing.T, p *Proxy) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		p.Use(ctx, nil)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// ask returns which server a new connection leads to; empty is none.
func ask(t *testing.T, address string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 64)
	n, _ := c.Read(buf)
	return strings.TrimSpace(string(buf[:n]))
}

func backends(names ...string) []Backend {
	var list []Backend
	for _, name := range names {
		list = append(list, Backend{Name: name, Host: name, Port: 1})
	}
	return list
}

func newProxy(n *network) *Proxy {
	return &Proxy{Log: slog.New(slog.DiscardHandler), Dial: n.dial, CheckEvery: 5 * time.Millisecond}
}

// TestBalance: every server in turn, those that are down left out at once, and
// back again when they are up.
func TestBalance(t *testing.T) {
	n := &network{up: map[string]bool{"a:1": true, "b:1": true}}
	p := newProxy(n)
	p.Use(t.Context(), backends("a", "b"))
	address := serve(t, p)
	// A server that no check has seen yet comes after one that was seen.
	both := func() map[string]bool { return map[string]bool{ask(t, address): true, ask(t, address): true} }
	await(t, func() bool { return len(both()) == 2 })
	n.set("a:1", false)
	for range 4 {
		if got := ask(t, address); got != "b:1" {
			t.Errorf("%q, and a is down", got)
		}
	}
	n.set("b:1", false)
	if got := ask(t, address); got != "" {
		t.Errorf("%q, and all are down", got)
	}
	n.set("a:1", true)
	n.set("b:1", true)
	await(t, func() bool { return len(both()) == 2 })
	p.Use(t.Context(), backends("b"))
	for range 4 {
		if got := ask(t, address); got != "b:1" {
			t.Errorf("%q, and there is b alone", got)
		}
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute")
		}
	}
}

// TestOpenConnections outlive a change of servers, and bytes go both ways.
func TestOpenConnections(t *testing.T) {
	n := &network{up: map[string]bool{"a:1": true, "b:1": true}}
	p := newProxy(n)
	p.Use(t.Context(), backends("a"))
	c, err := net.Dial("tcp", serve(t, p))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 4)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "a:1\n" {
		t.Fatal(string(buf), err)
	}
	p.Use(t.Context(), backends("b"))
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "ping" {
		t.Error(string(buf), err)
	}
}

// TestFollow: the file is what counts, without any signal, and a bad one changes
// nothing.
func TestFollow(t *testing.T) {
	first, second := echo(t, "first"), echo(t, "second")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(Config{Port: 1, Backends: []Backend{first}}.HAProxy())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	again := make(chan os.Signal)
	p := &Proxy{Log: slog.New(slog.DiscardHandler)}
	go func() { done <- p.serveAs(ctx, l, path, nil, again) }()
	address := l.Addr().String()
	asks := func(want string) bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		got, _ := io.ReadAll(c)
		return string(got) == want
	}
	await(t, func() bool { return asks("first") })
	write("bind nothing")
	again <- nil
	again <- nil // the first was dealt with
	if !asks("first") {
		t.Error("a bad file has changed something")
	}
	write(Config{Port: 1, Backends: []Backend{second}}.HAProxy())
	await(t, func() bool { return asks("second") })
	p.Use(ctx, nil)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// echo is a server that says its name.
func echo(t *testing.T, name string) Backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, name)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return Backend{Name: name, Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
}

func TestRunWithoutFile(t *testing.T) {
	if err := Run(t.Context(), filepath.Join(t.TempDir(), "none"), nil, slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
