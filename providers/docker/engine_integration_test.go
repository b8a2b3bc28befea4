// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

func engineConfig(e *dockerd.Engine) Config {
	c := config.Defaults[Config]()
	c.Host, c.Image = e.Host, dockerd.Image
	return c
}

// TestConformanceOnDockerd is TestConformance against a real engine.
func TestConformanceOnDockerd(t *testing.T) {
	e := dockerd.Start(t)
	open := func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider { return mustOpen(t, engineConfig(e)) }
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Parallel: 4, Leaks: func() ([]string, error) { return leaks(e) },
			WriteDisk:       func(id string, data []byte) error { return writeDisk(e, id, data) },
			ReadDisk:        func(id string, bytes int) ([]byte, error) { return readDisk(e, id, bytes) },
			NoLoadBalancers: "the engine has no image for them; TestBalancerOnDockerd makes one",
			ReadUserData: func(_ context.Context, id string) (string, error) {
				return e.ReadFile(id, "/media/cidata/user-data")
			},
		}
	}
	tier.Conformance(t, open)
}

// TestContainer looks at what is made, from the engine's side.
func TestContainer(t *testing.T) {
	e := dockerd.Start(t)
	p := mustOpen(t, engineConfig(e))
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	i, err := p.CreateInstance(t.Context(), "web", "key", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{VCPUs: 1, Memory: 64, Tags: map[string]string{provider.TagCluster: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := e.Client.ContainerInspect(t.Context(), i.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	host := answer.Container.HostConfig
	if host.Privileged || host.NanoCPUs != 1e9 || host.Memory != 64<<20 || len(host.CapAdd) == 0 || answer.Container.Config.Labels[tagPrefix+provider.TagCluster] != "c" {
		t.Errorf("privileged %v, %d nano-CPUs, %d bytes, capabilities %v, labels %v", host.Privileged, host.NanoCPUs, host.Memory, host.CapAdd, answer.Container.Config.Labels)
	}
	if meta, err := e.ReadFile(i.ID, "/media/cidata/meta-data"); err != nil || !strings.Contains(meta, i.Name) {
		t.Errorf("meta-data %q, %v", meta, err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}

func TestBadWorld(t *testing.T) {
	e := dockerd.Start(t)
	for name, row := range map[string]struct {
		change func(*Config)
		class  error
		want   string
	}{
		"image":     {func(c *Config) { c.Image = "no-such-image" }, provider.ErrNotFound, "no-such-image"},
		"network":   {func(c *Config) { c.Network = "no-such-network" }, provider.ErrNotFound, "no-such-network"},
		"no engine": {func(c *Config) { c.Host = "unix:///nonexistent.sock" }, provider.ErrUnavailable, "nonexistent.sock"},
		"size":      {func(c *Config) { c.CPUs = 512 }, provider.ErrCapacity, "512 CPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			c := engineConfig(e)
			row.change(&c)
			p := mustOpen(t, c)
			_, createErr := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{})
			for _, err := range []error{p.ConfigVerifier(), createErr} {
				if !errors.Is(err, row.class) || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%v, want %v that names %s", err, row.class, row.want)
				}
			}
			if left, err := e.Containers(); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// TestForeignContainer with the name of one of ours is left alone.
func TestForeignContainer(t *testing.T) {
	e := dockerd.Start(t)
	p := mustOpen(t, engineConfig(e))
	theirs, err := e.Client.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: nameOf("key"), Image: dockerd.Image})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), theirs.ID); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.GetInstance(t.Context(), theirs.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if left, err := e.Containers(); err != nil || len(left) != 1 {
		t.Errorf("there are %q, %v", left, err)
	}
}

// TestHalfMade: a container that a crash has left without user-data is finished.
func TestHalfMade(t *testing.T) {
	e := dockerd.Start(t)
	p := mustOpen(t, engineConfig(e))
	left, err := p.make(t.Context(), request{"pod", "key", provider.InstanceTypeSpec{}})
	if err != nil {
		t.Fatal(err)
	}
	i, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{})
	if err != nil || i.ID != left {
		t.Fatalf("%+v, %v: want %s", i, err, left)
	}
	if got, err := e.ReadFile(i.ID, "/media/cidata/user-data"); err != nil || got != "#cloud-config\n" {
		t.Errorf("user-data %q, %v", got, err)
	}
}

// TestGuestThatEnds at once is not an instance that anybody can reach.
func TestGuestThatEnds(t *testing.T) {
	e := dockerd.Start(t)
	p := mustOpen(t, engineConfig(e))
	i, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.ContainerKill(t.Context(), i.ID, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	again, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{})
	if !errors.Is(err, provider.ErrUnavailable) || again == nil || again.ID != i.ID {
		t.Errorf("%+v, %v: want the id and that it has ended", again, err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}
