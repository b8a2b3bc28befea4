// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/tier"
)

// TestOddLives are ways to roll out and to delete that are not the usual ones: nothing is
// replaced before somebody deletes it, Secrets go before the machines that were started
// with them, and a Cluster is deleted in the foreground.
func TestOddLives(t *testing.T) {
	tier.OnlyAll(t)
	l := &life{whole: t, r: capi.NewRepository(t), cloud: capi.StartCloud(t)}
	l.r.Release(t, "v0.1.0")
	l.ports[0] = cluster.HoldPort(t)
	run(t, []step{
		{"init", l.init},
		{"a cluster", l.oneCluster},
		{"OnDelete", l.onDelete},
		{"Secrets first", l.secretsFirst},
		{"in the foreground", l.foreground},
	})
}

func (l *life) oneCluster(t *testing.T) {
	l.m.Apply(t, l.m.Generate(t, capi.Wanted{Name: "work", Namespace: "fleet", Flavor: "outrigger", Version: version, Port: l.ports[0], ControlPlanes: 1, Workers: 2}))
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 2)
}

// onDelete: of two workers of an older template the one that is deleted is replaced by one
// of the newer; the other stays.
func (l *life) onDelete(t *testing.T) {
	before := l.cloud.Ledger(t)
	l.m.Apply(t, `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
metadata: {name: work-newer, namespace: fleet}
spec: {template: {spec: {tags: {of: newer}}}}
`)
	l.m.Kubectl(t, "-n", "fleet", "patch", "machinedeployment", "work-md-0", "--type=merge",
		"-p", `{"spec":{"rollout":{"strategy":{"type":"OnDelete"}},"template":{"spec":{"infrastructureRef":{"name":"work-newer"}}}}}`)
	l.m.Kubectl(t, "-n", "fleet", "wait", "machinedeployment/work-md-0", "--for=jsonpath={.status.upToDateReplicas}=0", "--timeout=4m")
	if now := l.cloud.Ledger(t); !slices.Equal(now, before) {
		t.Fatalf("instances %v became %v, and nobody has deleted one", before, now)
	}
	l.m.Kubectl(t, "-n", "fleet", "delete", "machine", l.worker(t), "--timeout=4m")
	l.awaitOther(t, before, 1, 2)
	if of := l.m.Kubectl(t, "-n", "fleet", "get", "outriggermachines", "-o", "jsonpath={.items[*].spec.tags.of}"); of != "newer" {
		t.Errorf("machines of the newer template: %q, want one", of)
	}
}

// secretsFirst: a machine whose bootstrap data is gone lives on, and is deleted.
func (l *life) secretsFirst(t *testing.T) {
	worker := l.worker(t)
	secret := l.m.Kubectl(t, "-n", "fleet", "get", "machine", worker, "-o", "jsonpath={.spec.bootstrap.dataSecretName}")
	before := l.cloud.Ledger(t)
	l.m.Kubectl(t, "-n", "fleet", "delete", "secret", secret)
	l.m.Kubectl(t, "-n", "fleet", "annotate", "outriggermachine", worker, "looked-at=again")
	l.m.Manager(capi.Label).Kill()
	l.m.Manager(capi.Label).Return(t)
	l.m.AwaitCluster(t, "fleet", "work", "", 1, 2)
	if now := l.cloud.Ledger(t); !slices.Equal(now, before) {
		t.Errorf("instances %v became %v", before, now)
	}
	l.m.Kubectl(t, "-n", "fleet", "delete", "machine", worker, "--timeout=4m")
	l.awaitOther(t, before, 1, 2)
}

// foreground: what the Cluster owns goes with it, in whatever order, and nothing is left.
func (l *life) foreground(t *testing.T) {
	l.m.Kubectl(t, "-n", "fleet", "delete", "cluster", "work", "--cascade=foreground", "--timeout=4m")
	l.cloud.AwaitLedger(t, 0)
	capi.Eventually(t, "its objects to be gone", func(context.Context) error {
		left, err := l.m.TryKubectl("-n", "fleet", "get", "clusters,machines,outriggerclusters,outriggermachines", "-o", "name")
		if err == nil && left != "" {
			err = fmt.Errorf("there are %s", left)
		}
		return err
	})
}
