// SPDX-License-Identifier: Apache-2.0

package localbalancer

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is nobody else's: a port that is free for now stays free.
var here = netip.MustParseAddr("127.83.0.1")

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(here.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// saying is a backend that says a word to everybody.
func saying(t *testing.T, word string) uint16 {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, word)
			conn.Close()
		}
	}()
	return portOf(l)
}

// free returns a port on which nobody listens, for now.
func free(t *testing.T) uint16 {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return portOf(l)
}

func heard(port uint16) string {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(here.String(), strconv.Itoa(int(port))), 10*time.Second)
	if err != nil {
		return "nobody"
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	text, _ := io.ReadAll(conn)
	return string(text)
}

func spec(key string, ports ...provider.LoadBalancerPort) provider.LoadBalancerSpec {
	return provider.LoadBalancerSpec{Key: key, Ports: ports, Backends: []provider.LoadBalancerBackend{{Name: "n", Addr: here}}}
}

func TestBalancer(t *testing.T) {
	b := New(here, slog.New(slog.DiscardHandler))
	defer b.Close()
	ctx, one, two := t.Context(), provider.LoadBalancerPort{Port: free(t), Target: saying(t, "one")}, provider.LoadBalancerPort{Port: free(t), Target: saying(t, "two")}
	for range 2 {
		made, err := b.EnsureLoadBalancer(ctx, spec("a", one, two))
		if err != nil || len(made.Addrs) != 1 || made.Addrs[0] != here {
			t.Fatalf("%+v, %v", made, err)
		}
	}
	if heard(one.Port) != "one" || heard(two.Port) != "two" {
		t.Errorf("port one says %q, port two %q", heard(one.Port), heard(two.Port))
	}
	if _, err := b.EnsureLoadBalancer(ctx, spec("b", two)); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("another's port: %v", err)
	}
	if _, err := b.GetLoadBalancer(ctx, "a"); err != nil {
		t.Error(err)
	}
	if _, err := b.GetLoadBalancer(ctx, "b"); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("one that was refused: %v", err)
	}
	one.Target = two.Target
	if _, err := b.EnsureLoadBalancer(ctx, spec("a", one)); err != nil {
		t.Fatal(err)
	}
	if heard(one.Port) != "two" || heard(two.Port) != "nobody" {
		t.Errorf("after a change port one says %q, port two %q", heard(one.Port), heard(two.Port))
	}
	if _, err := b.EnsureLoadBalancer(ctx, spec("b", two)); err != nil {
		t.Errorf("the port that was given up: %v", err)
	}
	for range 2 {
		if err := b.DeleteLoadBalancer(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if heard(one.Port) != "nobody" || heard(two.Port) != "two" {
		t.Errorf("after the deletion port one says %q, port two %q", heard(one.Port), heard(two.Port))
	}
}

func TestUDPIsRefused(t *testing.T) {
	b := New(here, slog.New(slog.DiscardHandler))
	defer b.Close()
	port := provider.LoadBalancerPort{Port: free(t), Target: 1, Protocol: provider.ProtocolUDP}
	if _, err := b.EnsureLoadBalancer(t.Context(), spec("a", port)); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "is UDP") {
		t.Errorf("%v", err)
	}
}

func TestBalancersAreListed(t *testing.T) {
	b := New(here, slog.New(slog.DiscardHandler))
	defer b.Close()
	mine := spec("a", provider.LoadBalancerPort{Port: free(t), Target: 1})
	mine.Tags = map[string]string{provider.TagCluster: "c1"}
	for _, s := range []provider.LoadBalancerSpec{mine, spec("b", provider.LoadBalancerPort{Port: free(t), Target: 1})} {
		if _, err := b.EnsureLoadBalancer(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := b.ListLoadBalancers(t.Context(), mine.Tags); err != nil || len(list) != 1 || list[0].Key != "a" || list[0].Addrs[0] != here {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := b.ListLoadBalancers(t.Context(), nil); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("without tags: %v", err)
	}
	if err := b.DeleteLoadBalancer(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if list, err := b.ListLoadBalancers(t.Context(), mine.Tags); err != nil || len(list) > 0 {
		t.Errorf("after the deletion: %+v, %v", list, err)
	}
}

func TestPortThatIsTaken(t *testing.T) {
	b := New(here, slog.New(slog.DiscardHandler))
	defer b.Close()
	taken := portOf(listen(t))
	if _, err := b.EnsureLoadBalancer(t.Context(), spec("a", provider.LoadBalancerPort{Port: taken, Target: 1})); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
