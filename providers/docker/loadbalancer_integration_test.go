// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

// TestBalancerOnDockerd has connections come through at a real engine.
func TestBalancerOnDockerd(t *testing.T) {
	e := dockerd.Start(t)
	const image = "test/loadbalancer:latest"
	e.Import(t, image, map[string]string{"cluster-loadbalancer": stand.Binary(t, "cluster-loadbalancer")}, `ENTRYPOINT ["/cluster-loadbalancer"]`)
	c := engineConfig(e)
	c.BalancerImage = image
	p := mustOpen(t, c)
	backends := map[string]uint16{"a": answering(t, "a"), "b": answering(t, "b")}
	gateway := netip.MustParseAddr("10.211.0.1") // this machine, on the engine's bridge
	spec := provider.LoadBalancerSpec{
		Key: "a1", Backends: []provider.LoadBalancerBackend{{Name: "n1", Addr: gateway}},
		Ports: []provider.LoadBalancerPort{{Port: 80, Target: backends["a"]}, {Port: 8443, Target: backends["b"]}},
	}
	made, err := p.EnsureLoadBalancer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	for port, want := range map[int]string{80: "a", 8443: "b"} {
		through(t, made.Addrs[0], port, want)
	}
	spec.Backends = nil
	if _, err := p.EnsureLoadBalancer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing answers without backends", func() bool { _, err := fetch(made.Addrs[0], 80); return err != nil })
	if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
		t.Fatal(err)
	}
	if left, err := e.Containers(); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// answering serves a word on a port of this machine.
func answering(t *testing.T, word string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, word) })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func fetch(addr netip.Addr, port int) (string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + net.JoinHostPort(addr.String(), fmt.Sprint(port)))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func through(t *testing.T, addr netip.Addr, port int, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d answers %s", port, want), func() bool { text, err := fetch(addr, port); return err == nil && text == want })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 90 seconds: %s", what)
		}
	}
}
