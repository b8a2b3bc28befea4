// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	docker "github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

// pool is a management cluster that makes machines of a Docker Engine, and a
// cluster pool with a MachinePool workers.
type pool struct {
	m      *capi.Management
	engine *dockerd.Daemon
}

// machinePool: core makes Machines of what a DockerMachinePool makes, and
// knows their Nodes. Containers are real and run the node agent; since there is
// no kubelet in them, the test makes their Nodes, and the management cluster is
// the API server that core finds them at.
func machinePool(t *testing.T, m *capi.Management) {
	p := &pool{m: m, engine: dockerd.StartDaemon(t, dockerd.Options{})}
	for _, tag := range []string{version, newer} {
		p.engine.Import(t, "test/node:"+tag, map[string]string{
			"node-agent": stand.Binary(t, "node-agent"), "bin/busybox": "/bin/busybox", "bin/sh": "->busybox",
		}, `ENTRYPOINT ["/node-agent"]`)
	}
	p.m.Run(t, capi.Label, capi.Program{
		Path: stand.Binary(t, "capi-manager"), Args: []string{"--provider=", "--docker-host=" + p.engine.Host, "--docker-node-image=test/node"},
	})
	run(t, []step{
		{"a control plane", p.controlPlane},
		{"machines of the pool", p.create},
		{"scale up", func(t *testing.T) { p.scale(t, 3) }},
		{"scale down", func(t *testing.T) { p.scale(t, 1) }},
		{"another version", p.upgrade},
		{"a deleted Machine is replaced", p.replace},
		{"a DockerMachine deleted by hand is replaced", p.replaceLost},
		{"delete the pool", p.deletePool},
		{"delete the cluster", p.deleteCluster},
	})
}

// controlPlane is one Machine without a control plane provider: core takes the
// control plane for initialized when that has a Node.
func (p *pool) controlPlane(t *testing.T) {
	kubeconfig, err := os.ReadFile(p.m.Kubeconfig)
	must(t, err)
	p.m.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: pool-kubeconfig, namespace: default, labels: {cluster.x-k8s.io/cluster-name: pool}}
type: cluster.x-k8s.io/secret
stringData: {value: %[1]q}
---
apiVersion: v1
kind: Secret
metadata: {name: boot, namespace: default}
stringData: {format: cloud-config, value: "#cloud-config\nruncmd:\n- [/bin/busybox, true]\n"}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: pool, namespace: default}
spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerCluster, name: pool}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerCluster
metadata: {name: pool, namespace: default}
spec: {disableLoadBalancer: true, controlPlaneEndpoint: {host: 127.0.0.1, port: %[2]s}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: cp, namespace: default, labels: {cluster.x-k8s.io/control-plane: "", cluster.x-k8s.io/cluster-name: pool}}
spec:
  clusterName: pool
  version: %[3]s
  bootstrap: {dataSecretName: boot}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerMachine, name: cp}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachine
metadata: {name: cp, namespace: default}
`, kubeconfig, p.m.Port(), version))
	p.await(t, "the control plane to have a Node", func(ctx context.Context) error {
		var c clusterv1.Cluster
		if err := p.m.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "pool"}, &c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
			return errors.New("the control plane is not initialized")
		}
		return nil
	})
}

// await repeats a question and has a Node for every machine that is there.
func (p *pool) await(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	capi.Eventually(t, what, func(ctx context.Context) error {
		if err := p.kubelets(ctx); err != nil {
			return err
		}
		return ask(ctx)
	})
}

// kubelets does what those in the machines would.
func (p *pool) kubelets(ctx context.Context) error {
	machines, err := p.machines(ctx)
	for _, m := range machines {
		if m.Spec.ProviderID != "" && m.DeletionTimestamp.IsZero() {
			err = errors.Join(err, p.kubelet(ctx, &m))
		}
	}
	return err
}

// kubelet has a Node for a machine, with a status. Core may write the Node
// between the two.
func (p *pool) kubelet(ctx context.Context, m *infrav1.DockerMachine) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}, Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
	err := p.m.Client.Get(ctx, client.ObjectKeyFromObject(n), n)
	if apierrors.IsNotFound(err) {
		err = p.m.Client.Create(ctx, n)
	}
	if err != nil || len(n.Status.Conditions) > 0 {
		return err
	}
	c, err := p.engine.Client.ContainerInspect(ctx, container(m), docker.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	_, n.Status.NodeInfo.KubeletVersion, _ = strings.Cut(c.Container.Config.Image, ":")
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, Reason: "Kubelet", LastTransitionTime: metav1.Now()})
	}
	return p.m.Client.Status().Update(ctx, n)
}

// container is the name of a machine's.
func container(m *infrav1.DockerMachine) string {
	return strings.TrimPrefix(m.Spec.ProviderID, "docker:////")
}

func (p *pool) machines(ctx context.Context) ([]infrav1.DockerMachine, error) {
	var list infrav1.DockerMachineList
	err := p.m.Client.List(ctx, &list, client.InNamespace("default"))
	return list.Items, err
}

func (p *pool) create(t *testing.T) {
	p.m.Apply(t, fmt.Sprintf(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: workers, namespace: default}
spec:
  clusterName: pool
  replicas: 2
  template:
    spec:
      clusterName: pool
      version: %s
      bootstrap: {dataSecretName: boot}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DockerMachinePool, name: workers}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachinePool
metadata: {name: workers, namespace: default}
`, version))
	p.settled(t, 2, version)
}

// settled waits until everybody knows as many machines of the pool: the engine,
// our provider, core, and the cluster by its Nodes.
func (p *pool) settled(t *testing.T, n int, version string) {
	t.Helper()
	p.await(t, fmt.Sprintf("%d machines of version %s", n, version), func(ctx context.Context) error {
		var owner clusterv1.MachinePool
		if err := p.m.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: "workers"}, &owner); err != nil {
			return err
		}
		machines, err := p.m.Machines(ctx, "default", "pool")
		if err != nil {
			return err
		}
		var wrong []error
		if s := owner.Status; s.Phase != string(clusterv1.MachinePoolPhaseRunning) || len(s.NodeRefs) != n || len(owner.Spec.ProviderIDList) != n {
			wrong = append(wrong, fmt.Errorf("the MachinePool is %s, has the Nodes %v and the provider ids %v", s.Phase, s.NodeRefs, owner.Spec.ProviderIDList))
		}
		for _, m := range machines {
			if m.Name != "cp" {
				wrong = append(wrong, p.complete(&m, owner.Spec.ProviderIDList, version))
			}
		}
		if len(machines) != n+1 {
			wrong = append(wrong, fmt.Errorf("there are %d Machines", len(machines)))
		}
		return errors.Join(append(wrong, p.counted(ctx, n+1))...)
	})
}

// complete returns what is missing of a Machine of the pool.
func (p *pool) complete(m *clusterv1.Machine, ids []string, version string) error {
	switch {
	case m.Status.Phase != string(clusterv1.MachinePhaseRunning) || !m.DeletionTimestamp.IsZero():
		return fmt.Errorf("Machine %s is %s", m.Name, m.Status.Phase)
	case m.Status.NodeRef.Name != m.Name || !slices.Contains(ids, m.Spec.ProviderID):
		return fmt.Errorf("Machine %s has the Node %q and the provider id %s", m.Name, m.Status.NodeRef.Name, m.Spec.ProviderID)
	case m.Spec.Version != version || len(m.Status.Addresses) == 0:
		return fmt.Errorf("Machine %s is of version %s and has the addresses %v", m.Name, m.Spec.Version, m.Status.Addresses)
	}
	return nil
}

// counted returns what there is more or less than that many machines of a
// cluster.
func (p *pool) counted(ctx context.Context, n int) error {
	containers, err := p.engine.Containers()
	if err != nil {
		return err
	}
	machines, err := p.machines(ctx)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := p.m.Client.List(ctx, &nodes); err != nil {
		return err
	}
	if len(containers) != n || len(machines) != n || len(nodes.Items) != n {
		return fmt.Errorf("there are the containers %v, %d DockerMachines and %d Nodes", containers, len(machines), len(nodes.Items))
	}
	return nil
}

func (p *pool) scale(t *testing.T, n int) {
	p.m.Kubectl(t, "scale", "machinepool/workers", fmt.Sprintf("--replicas=%d", n))
	p.settled(t, n, version)
}

// upgrade: the version is that of the MachinePool, and the machines are made
// again.
func (p *pool) upgrade(t *testing.T) {
	p.m.Kubectl(t, "patch", "machinepool", "workers", "--type=merge", "-p", `{"spec":{"template":{"spec":{"version":"`+newer+`"}}}}`)
	p.settled(t, 1, newer)
}

func (p *pool) replace(t *testing.T) {
	before := p.member(t, "uid")
	p.m.Kubectl(t, "delete", "machines", "-l", clusterv1.MachinePoolNameLabel+"=workers", "--timeout=4m")
	p.settled(t, 1, newer)
	if now := p.member(t, "uid"); now == before {
		t.Errorf("the DockerMachine is still %s", now)
	}
}

// replaceLost: core keeps the Machine of what is deleted under it.
func (p *pool) replaceLost(t *testing.T) {
	lost := p.member(t, "name")
	p.m.Kubectl(t, "delete", "dockermachine", lost, "--timeout=4m")
	p.settled(t, 1, newer)
	if now := p.member(t, "name"); now == lost {
		t.Errorf("the DockerMachine that came has the name %s of the one whose Machine was still there", now)
	}
}

// member returns a field of the metadata of the pool's only machine.
func (p *pool) member(t *testing.T, field string) string {
	t.Helper()
	return p.m.Kubectl(t, "get", "dockermachines", "-l", clusterv1.MachinePoolNameLabel+"=workers", "-o", "jsonpath={.items[*].metadata."+field+"}")
}

func (p *pool) deletePool(t *testing.T) {
	p.m.Kubectl(t, "delete", "machinepool", "workers", "--timeout=4m")
	p.await(t, "nothing of the pool", func(ctx context.Context) error { return p.counted(ctx, 1) })
	if out := p.m.Kubectl(t, "get", "dockermachinepools,machines", "-l", clusterv1.MachinePoolNameLabel+"=workers", "-o", "name"); out != "" {
		t.Errorf("there are still %s", out)
	}
}

func (p *pool) deleteCluster(t *testing.T) {
	p.m.Kubectl(t, "delete", "cluster", "pool", "--timeout=4m")
	capi.Eventually(t, "nothing at the engine", func(ctx context.Context) error {
		containers, err := p.engine.Containers()
		if err == nil && len(containers) > 0 {
			err = fmt.Errorf("there are %v", containers)
		}
		return err
	})
}
