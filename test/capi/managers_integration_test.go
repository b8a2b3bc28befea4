// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
)

// crew is a management cluster with two managers of our provider, of which one
// acts.
type crew struct {
	m              *capi.Management
	cloud          *capi.Cloud
	leader, second *capi.Manager
}

const crewNamespace = "default"

// TestManagement are lives of managers one after the other at one management cluster:
// to start and install one takes more than most of them do. Each leaves nothing that
// the managers of the next could take for theirs, so Kinds is the last.
func TestManagement(t *testing.T) {
	t.Parallel() // it waits most of the time
	r := capi.NewRepository(t)
	r.Release(t, "v0.1.0")
	m := capi.Start(t, r)
	m.Init(t, capi.Name)
	run(t, []step{
		{"MachinePool", func(t *testing.T) { machinePool(t, m) }},
		{"TwoManagers", func(t *testing.T) { twoManagers(t, m) }},
		{"Kinds", func(t *testing.T) { allKinds(t, m) }},
	})
}

// twoManagers: two managers as a Deployment with two replicas has them, and
// a cluster with three machines of its control plane. Each step begins with what
// the one before has left.
func twoManagers(t *testing.T, m *capi.Management) {
	c := &crew{m: m, cloud: capi.StartCloud(t)}
	program := c.cloud.Ours(t, "--leader-elect=true")
	// As slow as makes it likely that something is being made when the leader dies.
	program.Env = append(program.Env, "FAKE_LATENCY=500ms")
	c.leader = c.m.Run(t, capi.Label, program)
	first := c.awaitLeader(t, "")
	c.second = c.m.Run(t, capi.Label, program)
	c.m.Apply(t, c.m.Generate(t, capi.Wanted{
		Name: "three", Namespace: crewNamespace, Flavor: "outrigger", Version: version, Port: cluster.HoldPort(t), ControlPlanes: 3, Workers: 2,
	}))
	run(t, []step{
		{"the leader is killed while it makes machines", func(t *testing.T) { c.killLeader(t, first) }},
		{"three machines of the control plane", c.three},
		{"rollout of three", c.rollout},
		{"scale of the control plane to one", c.scale},
		{"delete", c.delete},
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitLeader waits until somebody else than before holds the lease.
func (c *crew) awaitLeader(t *testing.T, before string) (holder string) {
	t.Helper()
	lease := types.NamespacedName{Namespace: "outrigger-capi-system", Name: "capi-manager-leader-election.outrigger.dev"}
	capi.Eventually(t, "another leader than "+before, func(ctx context.Context) error {
		var l coordinationv1.Lease
		err := c.m.Client.Get(ctx, lease, &l)
		if holder = ptr.Deref(l.Spec.HolderIdentity, ""); err == nil && (holder == "" || holder == before) {
			err = fmt.Errorf("the lease is held by %q", holder)
		}
		return err
	})
	return holder
}

// killLeader ends the leader without a warning when something has been begun
// that is not there yet. It holds the lease until that has run out.
func (c *crew) killLeader(t *testing.T, first string) {
	capi.Eventually(t, "a machine that is being made", func(ctx context.Context) error {
		var list infrav1.OutriggerMachineList
		if err := c.m.Client.List(ctx, &list); err != nil {
			return err
		}
		for _, m := range list.Items {
			if m.Annotations[infrav1.BeganAnnotation] != "" && m.Spec.ProviderID == "" {
				return nil
			}
		}
		return errors.New("there is none")
	})
	if n := c.second.Reconciles(t, "outriggermachine"); n != 0 {
		t.Errorf("the manager that does not lead has reconciled %d times", n)
	}
	c.leader.Kill()
	c.awaitLeader(t, first)
}

func (c *crew) three(t *testing.T) {
	c.m.AwaitCluster(t, crewNamespace, "three", version, 3, 2)
	c.cloud.AwaitLedger(t, 5)
	if made := c.cloud.Made(t); made != 5 {
		t.Errorf("%d instances were made for 5 machines", made)
	}
}

// rollout replaces one machine of the control plane after the other: each is an
// etcd member that joins before another leaves.
func (c *crew) rollout(t *testing.T) {
	if os.Getenv("OUTRIGGER_CAPI_CONTROL_PLANES") == "" {
		t.Skip("it takes a minute, and TestLifecycle replaces a control plane of one; run: OUTRIGGER_CAPI_CONTROL_PLANES=1 go test -tags integration -run TestManagement ./test/capi")
	}
	before := c.controlPlane(t)
	c.m.Clusterctl(t, "alpha", "rollout", "restart", "kubeadmcontrolplane/three-control-plane", "-n", crewNamespace)
	capi.Eventually(t, "three other machines of the control plane", func(context.Context) error {
		now := c.controlPlane(t)
		for _, name := range before {
			if strings.Contains(strings.Join(now, " "), name) {
				return fmt.Errorf("of %s there are still %s", before, now)
			}
		}
		return nil
	})
	c.m.AwaitCluster(t, crewNamespace, "three", version, 3, 2)
	c.cloud.AwaitLedger(t, 5)
	if made := c.cloud.Made(t); made != 8 {
		t.Errorf("%d instances were made for 8 machines", made)
	}
}

func (c *crew) controlPlane(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.m.Kubectl(t, "get", "machines", "-l", "cluster.x-k8s.io/control-plane", "-o", "jsonpath={.items[*].metadata.name}"))
}

func (c *crew) scale(t *testing.T) {
	before := c.controlPlane(t)
	c.m.Kubectl(t, "scale", "kubeadmcontrolplane/three-control-plane", "--replicas=1")
	c.m.AwaitCluster(t, crewNamespace, "three", version, 1, 2)
	c.cloud.AwaitLedger(t, 3)
	now := c.controlPlane(t)
	if len(now) != 1 || !strings.Contains(strings.Join(before, " "), now[0]) {
		t.Errorf("of the control plane %s stayed %s (-before +now):\n%s", before, now, cmp.Diff(before, now))
	}
}

func (c *crew) delete(t *testing.T) {
	c.m.Kubectl(t, "delete", "cluster", "three", "--timeout=4m")
	c.cloud.AwaitLedger(t, 0)
}
