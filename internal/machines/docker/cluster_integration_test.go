// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// TestClusterLife: one machine of a control plane and two workers behind a load
// balancer, which come back by themselves when the engine dies, at the same
// addresses, with their bootstrap done once; a manager that starts again knows
// them; nothing is left of them in the end.
func TestClusterLife(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	before := inventory(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "one")
	w.ensureCluster(t, b)
	addresses := map[string]string{}
	for _, name := range []string{"one-control-plane", "one-worker-1", "one-worker-2"} {
		state := w.ensure(t, b, w.add(name, name == "one-control-plane"))
		addresses[name] = net.JoinHostPort(state.Addresses[1].Address, "6443")
		answers(t, addresses[name], name)
	}
	answers(t, endpointOf(w), "one-control-plane")

	for _, restart := range []func(){func() { d.Restart(t) }, func() { d.Stop(); d.Again(t) }} {
		restartAll(t, b, w, restart)
		for name, address := range addresses {
			answers(t, address, name)
		}
		answers(t, endpointOf(w), "one-control-plane")
	}

	b = open(t, testConfig(d.Engine)) // the manager has started again
	endpoint := w.infra.Spec.ControlPlaneEndpoint
	if state := w.ensureCluster(t, b); state.Endpoint != endpoint {
		t.Errorf("the endpoint was %v and is %v", endpoint, state.Endpoint)
	}
	for name, s := range w.machines {
		state, err := b.EnsureMachine(t.Context(), s)
		if err != nil || state.Reason != "" || net.JoinHostPort(state.Addresses[1].Address, "6443") != addresses[name] {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		if ran, err := d.ReadFile(state.ProviderID[len(providerPrefix):], "/var/lib/ran"); err != nil || ran != "ran\n" {
			t.Errorf("%s has run its bootstrap so often: %q, %v", name, ran, err)
		}
	}
	for _, s := range w.machines {
		deleteMachine(t, b, s)
	}
	w.deleteCluster(t, b)
	if diff := cmp.Diff(before, inventory(t, d.Engine)); diff != "" {
		t.Errorf("the engine before (-) and after (+):\n%s", diff)
	}
}

// restartAll restarts the engine, and waits until it has started all containers of a
// cluster again: until then those that ran may still answer.
func restartAll(t *testing.T, b *Backend, w *world, restart func()) {
	t.Helper()
	started, err := startTimesOf(t.Context(), b, w)
	if err != nil {
		t.Fatal(err)
	}
	restart()
	eventually(t, "all containers start again", func(ctx context.Context) (bool, string) {
		now, err := startTimesOf(ctx, b, w)
		again := len(now) == len(started)
		for id, at := range now {
			again = again && at != "" && at != started[id]
		}
		return err == nil && again, fmt.Sprint(now, err)
	})
}

// startTimesOf are when a cluster's containers were started; empty for those
// that do not run.
func startTimesOf(ctx context.Context, b *Backend, w *world) (map[string]string, error) {
	list, err := b.containers(ctx, labelCluster, w.key())
	times := map[string]string{}
	for _, c := range list {
		found, err := b.inspect(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		if times[c.ID] = ""; found != nil && found.State.Running {
			times[c.ID] = found.State.StartedAt
		}
	}
	return times, err
}

// TestTwoManagers that do the same at the same time make everything once.
func TestTwoManagers(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	w := newWorld("default", "two")
	var both sync.WaitGroup
	scopes := []*reconciler.MachineScope{w.add("cp", true), w.add("worker", false)}
	for range 2 {
		c := testConfig(d.Engine)
		c.AdvertiseHost = "127.0.0.1"
		b := open(t, c)
		both.Go(func() {
			eventually(t, "the cluster", func(ctx context.Context) (bool, string) {
				state, err := b.EnsureCluster(ctx, &reconciler.ClusterScope{Cluster: w.cluster, Infra: w.infra.DeepCopy(), Key: w.key()})
				return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
			})
			for _, s := range scopes {
				eventually(t, "machine "+s.Infra.GetName(), func(ctx context.Context) (bool, string) {
					state, err := b.EnsureMachine(ctx, s)
					return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
				})
			}
		})
	}
	both.Wait()
	b := open(t, testConfig(d.Engine))
	containers, err := b.containers(t.Context(), labelCluster, w.key())
	if err != nil || len(containers) != 3 {
		t.Errorf("%d containers, %v", len(containers), err)
	}
	networks, err := b.networks(t.Context(), w.key())
	if err != nil || len(networks) != 1 {
		t.Errorf("%d networks, %v", len(networks), err)
	}
	w.deleteCluster(t, b)
}

// TestSameNames: clusters of the same name in two namespaces share nothing.
func TestSameNames(t *testing.T) {
	tier.OnlyAll(t) // TestNames has the names, and TestClusterLife a real cluster
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	red, blue := newWorld("red", "same"), newWorld("blue", "same")
	for _, w := range []*world{red, blue} {
		w.ensureCluster(t, b)
		s := w.add("same-cp", true)
		s.Bootstrap = []byte("#cloud-config\nwrite_files:\n" +
			"- {path: /www/index.html, content: " + w.infra.Namespace + "}\n" +
			`- {path: /etc/node-agent/services/http.json, content: '{"command": ["/bin/busybox", "httpd", "-f", "-p", "6443", "-h", "/www"]}'}` + "\n")
		w.ensure(t, b, s)
	}
	answers(t, endpointOf(red), "red")
	answers(t, endpointOf(blue), "blue")
	deleteMachine(t, b, red.machines["same-cp"])
	red.deleteCluster(t, b)
	answers(t, endpointOf(blue), "blue")
	blue.deleteCluster(t, b) // and with it the machine, whose object was removed by force
	if left, err := d.Containers(); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestBalancerComesBack: at the same address when it is removed or stopped by
// hand, in another image when another is wanted; and it follows the machines.
func TestBalancerComesBack(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	c := testConfig(d.Engine)
	c.AdvertiseHost = "127.0.0.1" // so that the engine gives it a port of the host
	b := open(t, c)
	w := newWorld("default", "lb")
	leaveHalfMade(t, b, w)
	if state := w.ensureCluster(t, b); state.Endpoint.Port == 0 {
		t.Errorf("endpoint %v", state.Endpoint)
	}
	first, second := w.add("cp-1", true), w.add("cp-2", true)
	w.ensure(t, b, first)
	answers(t, endpointOf(w), "cp-1")
	w.ensure(t, b, second)
	answers(t, endpointOf(w), "cp-2") // in turn

	for name, harm := range map[string]func(id string) error{
		"removed": func(id string) error {
			_, err := d.Client.ContainerRemove(t.Context(), id, client.ContainerRemoveOptions{Force: true})
			return err
		},
		"stopped": func(id string) error {
			_, err := d.Client.ContainerKill(t.Context(), id, client.ContainerKillOptions{})
			return err
		},
	} {
		endpoint := w.infra.Spec.ControlPlaneEndpoint
		if err := harm(balancerOf(t, b, w)); err != nil {
			t.Fatal(name, err)
		}
		if state := w.ensureCluster(t, b); state.Endpoint != endpoint {
			t.Errorf("%s: the endpoint was %v and is %v", name, endpoint, state.Endpoint)
		}
		answers(t, endpointOf(w), "cp-1")
	}

	d.Import(t, "other/loadbalancer:1", map[string]string{"cluster-loadbalancer": "/proc/self/exe"}, "LABEL other=1")
	if _, err := d.Client.ImageTag(t.Context(), client.ImageTagOptions{Source: balancerImage, Target: "other/loadbalancer:2"}); err != nil {
		t.Fatal(err)
	}
	old := balancerOf(t, b, w)
	w.infra.Spec.LoadbalancerImage = "other/loadbalancer:2"
	w.ensureCluster(t, b)
	if balancerOf(t, b, w) == old {
		t.Error("the load balancer is the old one, of the old image")
	}
	answers(t, endpointOf(w), "cp-1")

	deleteMachine(t, b, first)
	for range 4 {
		answers(t, endpointOf(w), "cp-2")
	}
	w.deleteCluster(t, b)
}

// leaveHalfMade leaves what a manager leaves that dies before the engine has
// chosen a port.
func leaveHalfMade(t *testing.T, b *Backend, w *world) {
	t.Helper()
	id := clusterIdentity(w.key(), w.infra)
	n, err := b.ensureNetwork(t.Context(), id, "", onlyIPv4)
	if err == nil {
		_, err = b.createBalancer(t.Context(), b.wanted(id, n, w.infra.Spec, defaultPort))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func balancerOf(t *testing.T, b *Backend, w *world) string {
	t.Helper()
	found, err := b.containerWith(t.Context(), labelCluster, w.key(), labelRole, roleLoadBalancer)
	if err != nil || found == nil {
		t.Fatal("no load balancer:", err)
	}
	return found.ID
}

// TestWithoutBalancer: the endpoint is that of the first machine.
func TestWithoutBalancer(t *testing.T) {
	tier.OnlyAll(t) // nothing is promised of it
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "bare")
	w.infra.Spec.DisableLoadBalancer, w.infra.Spec.Subnet = true, "10.88.0.0/24"
	if state := w.ensureCluster(t, b); state.Endpoint.Host != "10.88.0.2" {
		t.Errorf("endpoint %v", state.Endpoint)
	}
	w.ensure(t, b, w.add("worker", false))
	w.ensure(t, b, w.add("cp", true))
	answers(t, endpointOf(w), "cp")
	if list, err := b.containers(t.Context(), labelRole, roleLoadBalancer); err != nil || len(list) > 0 {
		t.Errorf("there are load balancers: %v, %v", list, err)
	}
	w.deleteCluster(t, b)
}

// TestDrift: what happens to a machine's container is seen, and nothing is made
// in its place.
func TestDrift(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "drift")
	w.ensureCluster(t, b)
	s := w.add("worker", false)
	w.ensure(t, b, s)
	name := specOf(s).ProviderID[len(providerPrefix):]
	reason := func(want string) {
		t.Helper()
		eventually(t, "reason "+want, func(ctx context.Context) (bool, string) {
			state, err := b.EnsureMachine(ctx, s)
			return err == nil && state.Reason == want && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
		})
	}
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(d.Client.ContainerPause(t.Context(), name, client.ContainerPauseOptions{}))
	reason(reconciler.ReasonInstanceStopped)
	check(d.Client.ContainerUnpause(t.Context(), name, client.ContainerUnpauseOptions{}))
	reason("")
	check(d.Client.ContainerStop(t.Context(), name, client.ContainerStopOptions{}))
	reason(reconciler.ReasonInstanceStopped)
	check(d.Client.ContainerStart(t.Context(), name, client.ContainerStartOptions{}))
	reason("")
	check(d.Client.ContainerRemove(t.Context(), name, client.ContainerRemoveOptions{Force: true}))
	reason(reconciler.ReasonInstanceGone)
	if list, err := b.containers(t.Context(), labelKey, s.Key); err != nil || len(list) > 0 {
		t.Errorf("in its place there is %v, %v", list, err)
	}
	deleteMachine(t, b, s)
	w.deleteCluster(t, b)
}
