// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/tier"
)

const (
	version = "v1.36.2"
	newer   = "v1.36.3"
)

// life is a management cluster with our provider, a cloud, and a cluster work
// in namespace fleet.
type life struct {
	whole *testing.T
	m     *capi.Management
	cloud *capi.Cloud
	r     *capi.Repository
	ports [2]string
	// source is the management cluster that the clusters were moved from, and
	// before what there was at the cloud then.
	source *capi.Management
	before []string
	made   int
}

// TestLifecycle is the life of a cluster of OutriggerMachines as users of
// clusterctl have it. Each step begins with what the one before has left.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	l := &life{whole: t, r: capi.NewRepository(t), cloud: capi.StartCloud(t)}
	l.r.Release(t, "v0.1.0")
	l.ports = [2]string{cluster.HoldPort(t), cluster.HoldPort(t)}
	run(t, []step{
		{"init from a release folder", l.init},
		{"generate cluster and apply", l.generate},
		{"all machines provisioned", l.provisioned},
		{"describe is all green", l.describe},
		{"ClusterClass", l.clusterClass},
		{"scale", l.scale},
		{"MachineHealthCheck remediation", l.remediate},
		{"restart of the manager", l.restart},
		{"rollout of workers", l.rolloutWorkers},
		{"rollout of the control plane", l.rolloutControlPlane},
		{"pause", l.pause},
		{"init of a second management cluster", l.initSecond},
		{"move", l.move},
		{"scale after the move", l.scaleAfterMove},
		{"upgrade plan", l.upgradePlan},
		{"upgrade of the provider", l.upgrade},
		{"scale after the upgrade", l.scaleAfterUpgrade},
		{"delete", l.deleteCluster},
		{"nothing is left", l.nothingLeft},
		{"removal of the provider", l.removeProvider},
	})
}

// manage starts a management cluster and installs our provider with clusterctl
// from a release folder.
func (l *life) manage(t *testing.T) *capi.Management {
	whole := lasting{t, l.whole}
	m := capi.Start(whole, l.r)
	m.Init(whole, capi.Name)
	m.Run(whole, capi.Label, l.cloud.Ours(whole))
	return m
}

func (l *life) init(t *testing.T) {
	l.m = l.manage(t)
	l.m.Kubectl(t, "create", "namespace", "fleet")
}

func (l *life) generate(t *testing.T) {
	work := capi.Wanted{Name: "work", Namespace: "fleet", Flavor: "outrigger", Version: version, Port: l.ports[0], ControlPlanes: 1, Workers: 2}
	class := capi.Wanted{Name: "classy", Namespace: "fleet", Flavor: "outrigger-topology", Version: version, Port: l.ports[1], ControlPlanes: 1, Workers: 1}
	l.m.Apply(t, l.m.Generate(t, work))
	l.m.Apply(t, l.m.Generate(t, class))
}

func (l *life) provisioned(t *testing.T) {
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 2)
	l.m.AwaitCluster(t, "fleet", "classy", version, 1, 1)
	l.cloud.AwaitLedger(t, 5)
	if made := l.cloud.Made(t); made != 5 {
		t.Errorf("%d instances were made for 5 machines", made)
	}
}

// clusterClass: a cluster by ClusterClass is changed by its topology, or by another
// template of its class, of which the topology's variables replace single fields; and it
// is removed. VERSION in a variable's image is the topology's, so that an upgrade is one of
// images too.
func (l *life) clusterClass(t *testing.T) {
	upgraded := version
	if tier.All() { // it replaces the control plane too, as another step does with a cluster without a class
		upgraded = newer
	}
	l.m.Apply(t, `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
metadata: {name: outrigger-worker-2, namespace: fleet}
spec: {template: {spec: {tags: {of: the-template}}}}
`)
	l.m.Kubectl(t, "-n", "fleet", "patch", "clusterclass", "outrigger", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/workers/machineDeployments/0/infrastructure/templateRef/name","value":"outrigger-worker-2"}]`)
	l.m.Kubectl(t, "-n", "fleet", "patch", "cluster", "classy", "--type=json", "-p",
		`[{"op":"test","path":"/spec/topology/variables/1/name","value":"controlPlaneMachine"},{"op":"add","path":"/spec/topology/variables/1/value/image","value":"node-VERSION"},
		{"op":"test","path":"/spec/topology/variables/2/name","value":"workerMachine"},{"op":"add","path":"/spec/topology/variables/2/value/image","value":"node-VERSION"},
		{"op":"replace","path":"/spec/topology/version","value":"`+upgraded+`"}]`)
	capi.Eventually(t, "a worker of the other template", func(ctx context.Context) error {
		workers, err := l.m.OutriggerMachines(ctx, "fleet", "classy")
		var is []string
		for _, w := range workers {
			if _, controlPlane := w.Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane {
				is = append(is, fmt.Sprint(w.Spec.Image, " ", w.Spec.VCPUs, " ", w.Spec.Memory, " ", w.Spec.Tags["of"]))
			}
		}
		if want := []string{"node-" + upgraded + " 2 2Gi the-template"}; err == nil && !slices.Equal(is, want) {
			err = fmt.Errorf("workers are %q, want %q", is, want)
		}
		return err
	})
	l.m.Kubectl(t, "-n", "fleet", "patch", "cluster", "classy", "--type=json", "-p", `[{"op":"replace","path":"/spec/topology/workers/machineDeployments/0/replicas","value":2}]`)
	l.m.AwaitCluster(t, "fleet", "classy", upgraded, 1, 2)
	l.m.Kubectl(t, "-n", "fleet", "delete", "cluster", "classy", "--timeout=4m")
	l.cloud.AwaitLedger(t, 3)
}

func (l *life) describe(t *testing.T) {
	out := l.m.Clusterctl(t, "describe", "cluster", "work", "-n", "fleet", "--show-conditions", "all")
	for _, want := range []string{"OutriggerCluster fleet/work", "KubeadmControlPlane fleet/work-control-plane"} {
		if !strings.Contains(out, want) {
			t.Errorf("describe does not show %s:\n%s", want, out)
		}
	}
	brief := l.m.Clusterctl(t, "describe", "cluster", "work", "-n", "fleet")
	if strings.Contains(brief, "False") || strings.Contains(brief, "Unknown") {
		t.Errorf("not all is green:\n%s", brief)
	}
}

func (l *life) scale(t *testing.T) {
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=3")
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 3)
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=2")
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 2)
	l.cloud.AwaitLedger(t, 3)
}

// remediate: a machine that dies is not Ready, and a MachineHealthCheck
// replaces it.
func (l *life) remediate(t *testing.T) {
	l.m.Apply(t, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: work, namespace: fleet}
spec:
  clusterName: work
  selector: {matchLabels: {cluster.x-k8s.io/deployment-name: work-md-0}}
  checks:
    nodeStartupTimeoutSeconds: 0
    unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 1}]
`)
	worker := l.worker(t)
	id := l.m.Instance(t, "fleet", worker)
	if err := l.cloud.PowerOff(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	l.m.Kubectl(t, "-n", "fleet", "wait", "machine/"+worker, "--for=delete", "--timeout=4m")
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 2)
	l.cloud.AwaitLedger(t, 3)
	l.m.Kubectl(t, "-n", "fleet", "delete", "machinehealthcheck", "work")
}

// restart: a manager killed while it makes machines leaves none behind and
// makes none twice.
func (l *life) restart(t *testing.T) {
	made := l.cloud.Made(t)
	manager := l.m.Manager(capi.Label)
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=4")
	manager.Kill()
	manager.Return(t)
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 4)
	if now := l.cloud.Made(t); now != made+2 {
		t.Errorf("%d instances were made for 2 machines", now-made)
	}
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=1")
	l.m.AwaitCluster(t, "fleet", "work", version, 1, 1)
	l.cloud.AwaitLedger(t, 2)
}

func (l *life) rolloutWorkers(t *testing.T) {
	before := l.cloud.Ledger(t)
	l.m.Clusterctl(t, "alpha", "rollout", "restart", "machinedeployment/work-md-0", "-n", "fleet")
	l.m.Kubectl(t, "-n", "fleet", "wait", "machinedeployment/work-md-0", "--for=condition=RollingOut=false", "--timeout=4m")
	l.awaitOther(t, before, 1, 1)
}

// awaitOther waits for a cluster of which count instances are not among before.
func (l *life) awaitOther(t *testing.T, before []string, count, workers int) {
	t.Helper()
	old := map[string]bool{}
	for _, id := range before {
		old[id] = true
	}
	capi.Eventually(t, "other instances", func(context.Context) error {
		others := 0
		now := l.cloud.Ledger(t)
		for _, id := range now {
			if !old[id] {
				others++
			}
		}
		if others != count || len(now) != 1+workers {
			return fmt.Errorf("of %v there are %d that were not among %v", now, others, before)
		}
		return nil
	})
	l.m.AwaitCluster(t, "fleet", "work", "", 1, workers)
}

// rolloutControlPlane: another version comes with another image, so with
// another template.
func (l *life) rolloutControlPlane(t *testing.T) {
	before := l.cloud.Ledger(t)
	l.m.Apply(t, `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
metadata: {name: work-newer, namespace: fleet}
spec: {template: {spec: {image: node-`+newer+`}}}
`)
	l.m.Kubectl(t, "-n", "fleet", "patch", "kubeadmcontrolplane", "work-control-plane", "--type=merge",
		"-p", `{"spec":{"version":"`+newer+`","machineTemplate":{"spec":{"infrastructureRef":{"name":"work-newer"}}}}}`)
	l.awaitOther(t, before, 1, 1)
	l.m.Kubectl(t, "-n", "fleet", "wait", "kubeadmcontrolplane/work-control-plane", "--for=jsonpath={.status.version}="+newer, "--timeout=4m")
	out := l.m.Kubectl(t, "-n", "fleet", "get", "machines", "-l", "cluster.x-k8s.io/control-plane", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if out != newer {
		t.Errorf("the control plane is of version %q, not %s", out, newer)
	}
}

// pause: nothing is made or removed while a cluster is paused, and all that was
// asked for happens afterwards.
func (l *life) pause(t *testing.T) {
	l.setPaused(t, "true")
	l.m.Kubectl(t, "-n", "fleet", "wait", "outriggercluster/work", "--for=condition=Paused=true", "--timeout=4m")
	l.m.Kubectl(t, "-n", "fleet", "wait", "outriggermachine", "--all", "--for=condition=Paused=true", "--timeout=4m")
	before := l.cloud.Ledger(t)
	worker := l.worker(t)
	seen := l.m.Manager(capi.Label).Reconciles(t, "outriggermachine")
	l.m.Kubectl(t, "-n", "fleet", "delete", "outriggermachine/"+worker, "machine/"+worker, "--wait=false")
	capi.Eventually(t, "the manager to look at the deleted machine", func(context.Context) error {
		if l.m.Manager(capi.Label).Reconciles(t, "outriggermachine") == seen {
			return errors.New("it has not")
		}
		return nil
	})
	if diff := cmp.Diff(before, l.cloud.Ledger(t)); diff != "" {
		t.Errorf("instances changed while paused (-before +now):\n%s", diff)
	}
	l.setPaused(t, "false")
	l.m.Kubectl(t, "-n", "fleet", "wait", "machine/"+worker, "--for=delete", "--timeout=4m")
	l.awaitOther(t, before, 1, 1)
}

func (l *life) setPaused(t *testing.T, paused string) {
	t.Helper()
	l.m.Kubectl(t, "-n", "fleet", "patch", "cluster", "work", "--type=merge", "-p", `{"spec":{"paused":`+paused+`}}`)
}

// worker returns the name of one, which its OutriggerMachine has too.
func (l *life) worker(t *testing.T) string {
	t.Helper()
	return l.m.Kubectl(t, "-n", "fleet", "get", "machines", "-l", "cluster.x-k8s.io/deployment-name=work-md-0", "-o", "jsonpath={.items[0].metadata.name}")
}

func (l *life) initSecond(t *testing.T) {
	l.before, l.made = l.cloud.Ledger(t), l.cloud.Made(t)
	l.source = l.m
	l.m = l.manage(t)
}

// move: another management cluster takes over. Nothing is made or removed for
// that, and nothing stays behind.
func (l *life) move(t *testing.T) {
	l.source.Clusterctl(t, "move", "-n", "fleet", "--to-kubeconfig", l.m.Kubeconfig)
	l.m.AwaitCluster(t, "fleet", "work", "", 1, 1)
	if diff := cmp.Diff(l.before, l.cloud.Ledger(t)); diff != "" || l.cloud.Made(t) != l.made {
		t.Errorf("instances changed with the move (-before +now); %d were made:\n%s", l.cloud.Made(t)-l.made, diff)
	}
	if out := l.source.Kubectl(t, "-n", "fleet", "get", "clusters,machines,outriggerclusters,outriggermachines,outriggermachinetemplates", "-o", "name"); out != "" {
		t.Errorf("the source still has %s", out)
	}
}

func (l *life) scaleAfterMove(t *testing.T) {
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=2")
	l.m.AwaitCluster(t, "fleet", "work", "", 1, 2)
	l.cloud.AwaitLedger(t, 3)
}

// upgradePlan: clusterctl finds the newer release.
func (l *life) upgradePlan(t *testing.T) {
	l.r.Release(t, "v0.1.1")
	if out := l.m.Clusterctl(t, "upgrade", "plan"); !strings.Contains(out, "v0.1.1") {
		t.Errorf("the plan does not offer v0.1.1:\n%s", out)
	}
}

// upgrade: clusterctl installs it over the old one, and nothing changes at the
// cloud.
func (l *life) upgrade(t *testing.T) {
	before := l.cloud.Ledger(t)
	l.m.Upgrade(t, "v0.1.1")
	whole := lasting{t, l.whole}
	l.m.Run(whole, capi.Label, l.cloud.Ours(whole))
	if diff := cmp.Diff(before, l.cloud.Ledger(t)); diff != "" {
		t.Errorf("instances changed with the upgrade (-before +now):\n%s", diff)
	}
}

func (l *life) scaleAfterUpgrade(t *testing.T) {
	l.m.Kubectl(t, "-n", "fleet", "scale", "machinedeployment/work-md-0", "--replicas=1")
	l.m.AwaitCluster(t, "fleet", "work", "", 1, 1)
}

func (l *life) deleteCluster(t *testing.T) {
	l.m.Kubectl(t, "-n", "fleet", "delete", "cluster", "work", "--timeout=4m")
}

// nothingLeft: neither instances nor objects.
func (l *life) nothingLeft(t *testing.T) {
	l.cloud.AwaitLedger(t, 0)
	l.m.Kubectl(t, "delete", "namespace", "fleet", "--timeout=4m")
}

func (l *life) removeProvider(t *testing.T) {
	l.m.Clusterctl(t, "delete", "--infrastructure", capi.Name)
}
