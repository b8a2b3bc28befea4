// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outrigger/outrigger/internal/capi"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// TestEngineKilledWhileMaking: an engine is killed, again and again, while it makes
// machines. All of them are there in the end, each once.
func TestEngineKilledWhileMaking(t *testing.T) {
	tier.OnlyAll(t)
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	b := open(t, testConfig(d.Engine))
	w := newWorld("default", "kills")
	w.ensureCluster(t, b)
	const each, rounds = 3, 4
	for round := range rounds {
		var machines []*capi.MachineScope
		for i := range each {
			machines = append(machines, w.add(fmt.Sprintf("m-%d-%d", round, i), false))
		}
		var made sync.WaitGroup
		var starts atomic.Int32
		for _, s := range machines {
			made.Go(func() {
				eventually(t, "machine "+s.Infra.GetName(), func(ctx context.Context) (bool, string) {
					state, err := b.EnsureMachine(ctx, s)
					if state.Step == stepStart {
						starts.Add(1)
					}
					if err != nil && strings.Contains(err.Error(), "already exists") {
						t.Logf("%s: %v", s.Infra.GetName(), err)
					}
					return err == nil && state.Provisioned, fmt.Sprintf("%+v, %v", state, err)
				})
			})
		}
		after := 1 + rand.Int32N(each)
		eventually(t, "a start", func(context.Context) (bool, string) { return starts.Load() >= after, "" })
		d.Restart(t)
		made.Wait()
	}
	if n, err := b.containers(t.Context(), labelRole, roleWorker); err != nil || len(n) != each*rounds {
		t.Errorf("%d machines, %v, want %d", len(n), err, each*rounds)
	}
	w.deleteCluster(t, b)
}
