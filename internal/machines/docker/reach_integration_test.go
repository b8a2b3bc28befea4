// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/test/dockerd"
)

// TestReachedFromAnotherNetwork: a management cluster in containers of the same engine,
// as kind's is, reaches the control plane of a cluster that has nothing said of its
// endpoint, and so do the cluster's own machines and the engine's host. The engine does
// keep its networks apart: the load balancer's own address is not reached from another.
func TestReachedFromAnotherNetwork(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{Filter: true})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	yes := true
	kind, err := d.Client.NetworkCreate(t.Context(), "kind", client.NetworkCreateOptions{Driver: "bridge", EnableIPv6: &yes,
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix("fc00:f853:ccd:e793::/64")}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*world{newWorld("default", "reach"), newWorld("default", "reach6").withRanges("fd00:10:244::/48", "fd00:10:96::/108")} {
		w.ensureCluster(t, b)
		w.ensure(t, b, w.add("cp", true))
		answers(t, endpointOf(w), "cp") // from the host
		own, err := b.network(t.Context(), w.key())
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, d.Engine, kind.ID, endpointOf(w)); got != "cp" {
			t.Errorf("from another network of the engine %s answers %q", endpointOf(w), got)
		}
		if got := ask(t, d.Engine, own.id, endpointOf(w)); got != "cp" {
			t.Errorf("from the cluster's own network %s answers %q", endpointOf(w), got)
		}
		inside := net.JoinHostPort(own.at(own.reserved()).first(own.families).String(), fmt.Sprint(defaultPort))
		if got := ask(t, d.Engine, own.id, inside); got != "cp" {
			t.Errorf("from the cluster's own network %s answers %q", inside, got)
		}
		if got := ask(t, d.Engine, kind.ID, inside); got == "cp" {
			t.Errorf("the engine does not keep its networks apart: this test proves nothing of %s", inside)
		}
		w.deleteCluster(t, b)
	}
}

// ask returns what an address answers over HTTP to a container in a network, or why it
// does not.
func ask(t *testing.T, e *dockerd.Engine, network, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	// A static busybox has no wget that works.
	question := fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | /bin/busybox nc -w 5 %s %s | /bin/busybox tail -n 1`, host, port)
	made, err := e.Client.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config:     &container.Config{Image: nodeImage, Tty: true, Entrypoint: []string{"/bin/sh", "-c", question}},
		HostConfig: &container.HostConfig{NetworkMode: container.NetworkMode(network)},
	})
	if err == nil {
		_, err = e.Client.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of a question", func(ctx context.Context) (bool, string) {
		found, err := e.Client.ContainerInspect(ctx, made.ID, client.ContainerInspectOptions{})
		return err == nil && found.Container.State.Status == container.StateExited, fmt.Sprint(err)
	})
	text := strings.TrimSpace(logsOf(t, e, made.ID))
	if _, err := e.Client.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	return text
}
