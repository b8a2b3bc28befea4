// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// TestEngineKilledWhileMaking: an engine is killed while it starts the machines of several
// clusters. Of most of them its runtime then has what the engine does not know, and it
// never starts those containers; all machines are there in the end, each once.
func TestEngineKilledWhileMaking(t *testing.T) {
	tier.OnlyAll(t)
	d := dockerd.StartDaemon(t, dockerd.Options{Storage: "overlay2"})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	tasks := filepath.Join(filepath.Dir(strings.TrimPrefix(d.Host, "unix://")), "exec/containerd/daemon/io.containerd.runtime.v2.task/moby/*")
	const clusters, rounds = 6, 2
	var worlds []*world
	for i := range clusters {
		w := newWorld("default", fmt.Sprint("c", i))
		w.infra.Spec.DisableLoadBalancer = true
		w.ensureCluster(t, b)
		worlds = append(worlds, w)
	}
	var interrupted atomic.Int32
	for round := range rounds {
		var made sync.WaitGroup
		for _, w := range worlds {
			s := w.add(fmt.Sprint("m", round), false)
			made.Go(func() {
				eventually(t, "a machine of "+w.infra.Name, func(ctx context.Context) (bool, string) {
					state, err := b.EnsureMachine(ctx, s)
					if reasonIs(err, ReasonStartInterrupted) {
						interrupted.Add(1)
					}
					return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
				})
			})
		}
		eventually(t, "starts that the engine's runtime has begun", func(context.Context) (bool, string) {
			begun, err := filepath.Glob(tasks)
			return err == nil && len(begun) > clusters*round+clusters/2, fmt.Sprint(begun, err)
		})
		d.Restart(t)
		made.Wait()
	}
	t.Logf("%d of %d starts were interrupted", interrupted.Load(), clusters*rounds)
	list, err := b.containers(t.Context(), labelRole, roleWorker)
	if err != nil || len(list) != clusters*rounds {
		t.Errorf("%d machines, %v, want %d", len(list), err, clusters*rounds)
	}
	for _, c := range list {
		if !strings.Contains(c.Status, "Up") {
			t.Errorf("%v is %s", c.Names, c.Status)
		}
	}
	for _, w := range worlds {
		w.deleteCluster(t, b)
	}
}
