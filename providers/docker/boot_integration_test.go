// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/dockerd"
)

// bootWait is ten times what the guest's programs take to start.
const bootWait = time.Minute

// forwarderPort is where the guest's forwarder listens.
const forwarderPort = 15150

// guestConfig is user-data with which the forwarder starts, and the node's
// side of the channel.
func guestConfig(t *testing.T) (cloudinit.CloudConfigGenerator, *tls.Config) {
	t.Helper()
	const name = "podvm-test"
	bundle, err := podtls.NewBundle(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file, err := (&apf.Config{
		PodName: "pod", PodNamespace: "test",
		TLSServerKey: string(bundle.ServerKeyPEM), TLSServerCert: string(bundle.ServerCertPEM), TLSClientCA: string(bundle.CAPEM),
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	client, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: name, CAPEM: bundle.CAPEM, CertPEM: bundle.ClientCertPEM, KeyPEM: bundle.ClientKeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	return cloudinit.CloudConfig{WriteFiles: []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(file)}}}, client
}

// TestGuestBoots: the guest's programs start in a container from the user-data
// that the provider copied in, and the agent answers through the forwarder.
func TestGuestBoots(t *testing.T) {
	e := dockerd.Start(t)
	e.LoadGuest(t)
	c := engineConfig(e)
	c.Image = dockerd.Guest
	p := mustOpen(t, c)
	data, client := guestConfig(t)
	begin := time.Now()
	i, err := p.CreateInstance(t.Context(), "pod", "sandbox-1", data, provider.InstanceTypeSpec{Tags: map[string]string{provider.TagKey: "sandbox-1"}})
	if err != nil {
		if i != nil {
			console, consoleErr := p.Console(context.Background(), i.ID, 8192)
			t.Logf("console (%v):\n%s", consoleErr, console)
		}
		t.Fatal(err)
	}
	t.Logf("created in %v, address %v", time.Since(begin), i.IPs)
	address := netip.AddrPortFrom(i.IPs[0], forwarderPort).String()
	var last error
	err = poll.Pace{First: 20 * time.Millisecond, Max: 200 * time.Millisecond}.Until(within(t, bootWait), func() (bool, error) {
		last = check(t.Context(), address, client)
		return last == nil, nil
	})
	if err != nil {
		console, consoleErr := p.Console(context.Background(), i.ID, 8192)
		t.Fatalf("the agent does not answer at %s: %v; console (%v):\n%s", address, last, consoleErr, console)
	}
	t.Logf("the agent answers after %v", time.Since(begin))
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// check asks the agent whether it serves, by way of the forwarder.
func check(ctx context.Context, address string, config *tls.Config) error {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := agent.NewHealthClient(client).Check(ctx, &agent.CheckRequest{})
	if err == nil && answer.Status != agent.HealthCheckResponse_SERVING {
		err = errors.New(answer.Status.String())
	}
	return err
}
