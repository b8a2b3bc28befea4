// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestKilledAtEachStep: a cluster with a machine of the control plane and a
// worker comes and goes, and the manager is killed at one of the steps of that:
// before or after a write, before or after a call to the cloud. So each step that
// there is has its turn, the first few times that it comes; with
// OUTRIGGER_SCHEDULES=all as often as it comes.
func TestKilledAtEachStep(t *testing.T) {
	whole, most := lifeWithDeath(t, "", 0), 4
	if os.Getenv("OUTRIGGER_SCHEDULES") == "all" {
		most = 1000
	}
	for _, name := range []string{"write of the object", "write of the status", "CreateInstance", "DeleteInstance"} {
		if whole.steps["before "+name] == 0 || whole.steps["after "+name] == 0 {
			t.Fatalf("steps %v, without %s", whole.steps, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(whole.steps)) {
		died := 0
		for nth := 1; nth <= min(whole.steps[name], most); nth++ {
			if lifeWithDeath(t, name, nth).where != "" {
				died++
			}
			if t.Failed() {
				t.Fatalf("killed %s, when that came for time %d", name, nth)
			}
		}
		if died == 0 {
			t.Errorf("never killed %s", name)
		}
		t.Logf("killed %s: %d times", name, died)
	}
}

// lifeWithDeath is the whole life, in which the first manager dies when it comes to
// a step for the nth time, and another takes over. It returns the fuse of the
// first.
func lifeWithDeath(t *testing.T, at string, nth int) *fuse {
	cloud := newCloud(t)
	s := &schedule{t: t, world: newWorld(t), random: rand.New(rand.NewPCG(1, 1)), cloud: cloud, removed: map[string]bool{}}
	open := func(f *fuse) {
		s.fuse = f
		s.manager = newManager(t, s.world, managerOptions{
			provider: mortalCloud{cloud.Reopen(), f}, objects: newMortalClient(s.api, f, s.random, map[string]client.Object{}), settle: time.Millisecond, interval: time.Millisecond,
		})
	}
	open(&fuse{left: -1, at: at, nth: nth})
	first := s.fuse
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not in a minute: %s", what)
			}
			if _, dead := s.fuse.burnt(); dead {
				s.backend.Close()
				open(&fuse{left: -1})
			}
			s.core()
			s.reconcileAll()
		}
	}
	s.addCluster()
	for _, name := range []string{"m0", "m1"} {
		s.addMachine(name)
		s.bootstrap(name)
	}
	s.changeMachine("m0", func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" })
	until("all are there", func() bool { return s.asWanted() })
	s.checkWanted()
	s.delete(&clusterv1.Cluster{}, clusterName)
	until("all are gone", func() bool { _, ok := s.cluster(); return !ok && len(s.infras()) == 0 })
	s.backend.Close()
	s.checkDoubles()
	if left := instances(t, cloud); len(left) > 0 {
		t.Errorf("leaked: instances of %q", left)
	}
	return first
}
