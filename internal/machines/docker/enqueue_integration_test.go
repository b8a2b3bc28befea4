// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
)

// TestWakes: who has news at a real engine is told, also after it has started
// again.
func TestWakes(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	clusters, machines := queues(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.Watch(ctx, "") }()
	defer func() { cancel(); <-ended }()
	w := newWorld("default", "wake")
	until := func(q requests, what, want string) {
		t.Helper()
		eventually(t, what, func(context.Context) (bool, string) {
			if q.Len() == 0 {
				return false, "nobody is woken"
			}
			got := woken(q, 1)
			return got == want, got
		})
	}
	w.ensureCluster(t, b)
	until(clusters, "the load balancer is started", "wake")
	state := w.ensure(t, b, w.add("m", false))
	until(machines, "the machine is started", "m")
	d.Stop()
	for _, q := range []requests{clusters, machines} {
		for q.Len() > 0 {
			woken(q, 1)
		}
	}
	d.Again(t)
	until(clusters, "the engine is there again", "wake")
	until(machines, "the engine is there again", "m")
	c, err := b.inspect(t.Context(), state.ProviderID[len(providerPrefix):])
	if err != nil || c == nil {
		t.Fatal(err)
	}
	eventually(t, "the machine runs", func(ctx context.Context) (bool, string) {
		c, err := b.inspect(ctx, c.ID)
		return err == nil && c != nil && c.State.Running, "not yet"
	})
	for machines.Len() > 0 {
		woken(machines, 1)
	}
	if err := b.remove(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	until(machines, "the machine's container is removed", "m")
	w.deleteCluster(t, b)
}
