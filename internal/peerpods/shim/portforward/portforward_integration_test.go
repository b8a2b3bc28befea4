// SPDX-License-Identifier: Apache-2.0

//go:build integration

package portforward

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// inside runs f in a network namespace.
func inside[T any](t *testing.T, path string, f func() (T, error)) T {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread()
		var r result
		ns, err := netns.GetFromPath(path)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if r.err = err; err == nil {
			r.value, r.err = f()
		}
		made <- r
	}()
	r := <-made
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.value
}

// TestForward: the namespace stands for the pod's VM as well, whose servers
// listen at the pod's address. Each answers with its port what it was sent.
func TestForward(t *testing.T) {
	testns.RequireRoot(t)
	defer goleak.VerifyNone(t)
	path, port := stand.PodNetns(t, stand.Dir(t), "pod")
	var servers []net.Listener
	for range 2 {
		l := inside(t, path, func() (net.Listener, error) {
			return net.Listen("tcp", net.JoinHostPort(port.Addrs[0].Addr().String(), "0"))
		})
		defer l.Close()
		servers = append(servers, l)
		go echo(l)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dial := func(port string) net.Conn {
		c := inside(t, path, func() (net.Conn, error) { return net.Dial("tcp4", "localhost:"+port) })
		c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	for _, l := range servers {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c := dial(port)
		defer c.Close()
		fmt.Fprint(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(c); string(got) != port+" hello" || err != nil {
			t.Errorf("the answer is %q, %v", got, err)
		}
	}
	t.Run("NobodyListens", func(t *testing.T) {
		got := inside(t, path, func() ([]byte, error) {
			c, err := net.Dial("tcp4", "localhost:9")
			if err != nil {
				return nil, nil // reset already
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			got, err := io.ReadAll(c)
			if err == nil {
				got = []byte("no reset")
			}
			return got, nil
		})
		if len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
	t.Run("AnotherShim", func(t *testing.T) {
		again, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(servers[0].Addr().String())
		c := dial(port)
		defer c.Close()
		begun := make([]byte, len(port))
		if _, err := io.ReadFull(c, begun); string(begun) != port {
			t.Errorf("%q, %v", begun, err)
		}
		again.Close() // with the connection
		if got, _ := io.ReadAll(c); len(got) > 1 {
			t.Errorf("%q after the end", got)
		}
	})
}

func echo(l net.Listener) {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprint(c, port, " ")
			io.Copy(c, c)
		}()
	}
}

func TestNoNamespace(t *testing.T) {
	if _, err := Open("/run/netns/nosuch"); err == nil {
		t.Error("opened")
	}
}
