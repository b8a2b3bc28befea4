// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// fails reconciles until the error has a class and a reason.
func fails(t *testing.T, class error, reason string, ensure func(context.Context) error) {
	t.Helper()
	eventually(t, "an error of reason "+reason, func(ctx context.Context) (bool, string) {
		err := ensure(ctx)
		var p reconciler.Reasoner
		return errors.Is(err, class) && errors.As(err, &p) && p.Reason() == reason, fmt.Sprint(err)
	})
}

func (w *world) tryCluster(b *Backend) func(context.Context) error {
	return func(ctx context.Context) error { _, err := b.EnsureCluster(ctx, w.clusterScope()); return err }
}

func try(b *Backend, s *reconciler.MachineScope) func(context.Context) error {
	return func(ctx context.Context) error { _, err := b.EnsureMachine(ctx, s); return err }
}

// TestFaults of the world: each has its class and reason, and ends when its
// cause does.
func TestFaults(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)

	t.Run("image missing", func(t *testing.T) {
		for _, pull := range []bool{true, false} {
			if !pull && !tier.All() {
				continue
			}
			c := testConfig(d.Engine)
			c.Pull = pull
			b := open(t, c)
			w := newWorld(fmt.Sprint("images-", pull), "c")
			w.infra.Spec.LoadBalancer = infrav1.DockerLoadBalancer{ImageRepository: "127.0.0.1:1/none"}
			fails(t, provider.ErrNotFound, ReasonImageMissing, w.tryCluster(b))
			w.infra.Spec.LoadBalancer = infrav1.DockerLoadBalancer{}
			w.ensureCluster(t, b)
			s := w.add("m", false)
			specOf(s).CustomImage = "127.0.0.1:1/none/node:v1"
			fails(t, provider.ErrNotFound, ReasonImageMissing, try(b, s))
			specOf(s).CustomImage = ""
			w.ensure(t, b, s)
			w.deleteCluster(t, b)
		}
	})

	t.Run("port taken", func(t *testing.T) {
		l, err := net.Listen("tcp4", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		b := open(t, testConfig(d.Engine))
		w := newWorld("port", "c")
		w.infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}
		fails(t, provider.ErrUnavailable, ReasonPortTaken, w.tryCluster(b))
		l.Close()
		want := w.infra.Spec.ControlPlaneEndpoint
		if state := w.ensureCluster(t, b); state.Endpoint != want {
			t.Errorf("endpoint %v, want %v", state.Endpoint, want)
		}
		w.ensure(t, b, w.add("cp", true))
		answers(t, endpointOf(w), "cp")

		// Of a cluster that was provisioned the same is a fault.
		provisioned := true
		w.infra.Status.Initialization.Provisioned = &provisioned
		if err := b.remove(t.Context(), balancerOf(t, b, w)); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp4", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		state, err := b.EnsureCluster(t.Context(), w.clusterScope())
		if err != nil || state.Reason != ReasonPortTaken || state.Provisioned {
			t.Errorf("%+v, %v", state, err)
		}
		l.Close()
		w.ensureCluster(t, b)
		answers(t, endpointOf(w), "cp")
		w.deleteCluster(t, b)
	})

	t.Run("mount missing", func(t *testing.T) {
		b := open(t, testConfig(d.Engine))
		w := newWorld("mount", "c")
		w.ensureCluster(t, b)
		s := w.add("m", false)
		missing := filepath.Join(t.TempDir(), "later")
		specOf(s).ExtraMounts = []infrav1.Mount{{HostPath: missing, ContainerPath: "/mnt/host", ReadOnly: true}}
		fails(t, provider.ErrInvalidArgument, ReasonMountMissing, try(b, s))
		if err := os.WriteFile(missing, []byte("of the host"), 0o600); err != nil {
			t.Fatal(err)
		}
		state := w.ensure(t, b, s)
		if got, err := d.ReadFile(state.ProviderID[len(providerPrefix):], "/mnt/host"); err != nil || got != "of the host" {
			t.Errorf("%q, %v", got, err)
		}
		w.deleteCluster(t, b)
	})

	t.Run("address taken", func(t *testing.T) {
		tier.OnlyAll(t)
		b := open(t, testConfig(d.Engine))
		w := newWorld("address", "c")
		w.infra.Spec.Subnet = "10.99.0.0/24"
		w.ensureCluster(t, b)
		n, err := b.network(t.Context(), w.key())
		if err != nil {
			t.Fatal(err)
		}
		addr, err := n.free(nil)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := d.Client.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Config: &container.Config{Image: nodeImage}, HostConfig: &container.HostConfig{NetworkMode: container.NetworkMode(n.id)}, NetworkingConfig: n.endpoint(n.at(addr)),
		})
		if err == nil {
			_, err = d.Client.ContainerStart(t.Context(), theirs.ID, client.ContainerStartOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if state := w.ensure(t, b, w.add("m", false)); state.Addresses[1].Address != "10.99.0.11" {
			t.Errorf("addresses %v", state.Addresses)
		}
		if err := b.remove(t.Context(), theirs.ID); err != nil {
			t.Fatal(err)
		}
		w.deleteCluster(t, b)
	})

	t.Run("name taken", func(t *testing.T) {
		tier.OnlyAll(t)
		b := open(t, testConfig(d.Engine))
		w := newWorld("name", "c")
		w.ensureCluster(t, b)
		s := w.add("m", false)
		name := identity{key: s.Key, name: "m"}.unique()
		theirs, err := d.Client.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: &container.Config{Image: nodeImage}})
		if err != nil {
			t.Fatal(err)
		}
		fails(t, provider.ErrAlreadyExists, ReasonNameTaken, try(b, s))
		deleteMachine(t, b, s)
		if found, err := b.inspect(t.Context(), theirs.ID); err != nil || found == nil {
			t.Errorf("somebody else's container is gone: %v", err)
		}
		if err := b.remove(t.Context(), theirs.ID); err != nil {
			t.Fatal(err)
		}
		w.deleteCluster(t, b)
	})

	t.Run("engine away", func(t *testing.T) {
		b := open(t, testConfig(d.Engine))
		w := newWorld("away", "c")
		w.ensureCluster(t, b)
		made, next := w.add("m", false), w.add("next", false)
		w.ensure(t, b, made)
		d.Stop()
		fails(t, provider.ErrUnavailable, ReasonEngineUnreachable, w.tryCluster(b))
		fails(t, provider.ErrUnavailable, ReasonEngineUnreachable, try(b, made))
		fails(t, provider.ErrUnavailable, ReasonEngineUnreachable, try(b, next))
		fails(t, provider.ErrUnavailable, ReasonEngineUnreachable, func(ctx context.Context) error {
			gone, err := b.DeleteMachine(ctx, next)
			if gone {
				return errors.New("gone, says a backend that cannot know")
			}
			return err
		})
		d.Again(t)
		w.ensure(t, b, next)
		w.deleteCluster(t, b)
	})

	if left, err := d.Containers(); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestDiskFull is where the engine has its data.
func TestDiskFull(t *testing.T) {
	tier.OnlyAll(t) // nothing is promised of it
	data := t.TempDir()
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=160m"); err != nil {
		t.Skipf("cannot mount a small file system, which needs root: %v; run: sudo make test", err)
	}
	t.Cleanup(func() { syscall.Unmount(data, syscall.MNT_DETACH) })
	d := dockerd.StartDaemon(t, dockerd.Options{Data: data})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("full", "c")
	w.ensureCluster(t, b)
	ballast := filepath.Join(data, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 160<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	s := w.add("m", false)
	fails(t, provider.ErrCapacity, ReasonDiskFull, try(b, s))
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.ensure(t, b, s)
	deleteMachine(t, b, s)
	w.deleteCluster(t, b)
}

// TestContainer looks at a machine from the engine's side.
func TestContainer(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "c")
	w.infra.Spec.FailureDomains = []clusterv1.FailureDomain{{Name: "rack-1"}}
	if state := w.ensureCluster(t, b); len(state.FailureDomains) != 1 {
		t.Errorf("failure domains %v", state.FailureDomains)
	}
	s := w.add("m", false)
	s.FailureDomain = "rack-1"
	state := w.ensure(t, b, s)
	if state.FailureDomain != "rack-1" {
		t.Errorf("failure domain %q", state.FailureDomain)
	}
	c, err := b.inspect(t.Context(), state.ProviderID[len(providerPrefix):])
	if err != nil || c == nil {
		t.Fatal(err)
	}
	if c.HostConfig.Privileged || len(c.HostConfig.CapAdd) != len(capabilities) {
		t.Errorf("privileged %v, capabilities %v", c.HostConfig.Privileged, c.HostConfig.CapAdd)
	}
	for _, m := range c.Mounts {
		if strings.Contains(m.Source, ".sock") || m.Destination != "/var" {
			t.Errorf("mount %+v", m)
		}
	}
	want := map[string]string{labelKey: s.Key, labelCluster: w.key(), labelNamespace: "default", labelName: "m", labelRole: roleWorker, labelDomain: "rack-1"}
	for name, value := range want {
		if c.Config.Labels[name] != value {
			t.Errorf("label %s is %q, want %q", name, c.Config.Labels[name], value)
		}
	}
	volume, err := d.Client.VolumeInspect(t.Context(), c.Mounts[0].Name, client.VolumeInspectOptions{})
	if err != nil || volume.Volume.Labels[labelKey] != s.Key {
		t.Errorf("volume %+v, %v", volume.Volume, err)
	}
	w.deleteCluster(t, b)
}
