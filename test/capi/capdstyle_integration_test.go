// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/dockerd"
)

// TestNodesInTheStyleOfDocker is a cluster from a manifest as people have them for
// Cluster API's own Docker provider: in v1beta1 throughout, with nothing about
// providerIDs, host names or kubeadm's checks. All Nodes are Ready, their Machines know
// them, and nothing is left in the end.
func TestNodesInTheStyleOfDocker(t *testing.T) {
	file := nodeArchive(t)
	f := &fleet{controlPlanes: 1, engine: dockerd.StartDaemon(t, dockerd.Options{Storage: "overlay2"})}
	f.load(t, file)
	f.empty = engineInventory(t, f.engine)
	f.manage(t)
	f.began = time.Now()
	f.m.Apply(t, fmt.Sprintf(styleOfDocker, nodesWork, nodeVersion, nodeWorkers))
	t.Cleanup(func() {
		if t.Failed() {
			f.show(t)
		}
	})
	capi.EventuallyIn(t, nodesPatience, "the cluster's kubeconfig", f.connect)
	f.nodesReady(t)
	f.machinesRunning(t)
	ids := f.workload.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}")
	if n := strings.Count(ids, "docker:////"+nodesWork); n != 1+nodeWorkers {
		t.Errorf("providerIDs of Nodes: %q", ids)
	}
	f.delete(t)
}

// styleOfDocker wants the cluster's name, the version, and the number of workers.
const styleOfDocker = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: %[1]s, namespace: default}
spec:
  clusterNetwork:
    services: {cidrBlocks: [10.128.0.0/12]}
    pods: {cidrBlocks: [192.168.0.0/16]}
    serviceDomain: cluster.local
  controlPlaneRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: %[1]s-control-plane, namespace: default}
  infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerCluster, name: %[1]s, namespace: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerCluster
metadata: {name: %[1]s, namespace: default}
spec: {}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: %[1]s-control-plane, namespace: default}
spec:
  replicas: 1
  version: %[2]s
  machineTemplate:
    infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: %[1]s-control-plane, namespace: default}
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer: {certSANs: [localhost, 127.0.0.1, 0.0.0.0]}
    initConfiguration:
      nodeRegistration: &registration
        criSocket: unix:///var/run/containerd/containerd.sock
        kubeletExtraArgs: {eviction-hard: 'nodefs.available<0%%,nodefs.inodesFree<0%%,imagefs.available<0%%'}
    joinConfiguration:
      nodeRegistration: *registration
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerMachineTemplate
metadata: {name: %[1]s-control-plane, namespace: default}
spec: {template: {spec: {}}}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: %[1]s-md-0, namespace: default}
spec:
  clusterName: %[1]s
  replicas: %[3]d
  selector: {matchLabels: null}
  template:
    spec:
      clusterName: %[1]s
      version: %[2]s
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: %[1]s-md-0, namespace: default}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: %[1]s-md-0, namespace: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerMachineTemplate
metadata: {name: %[1]s-md-0, namespace: default}
spec: {template: {spec: {}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
kind: KubeadmConfigTemplate
metadata: {name: %[1]s-md-0, namespace: default}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          criSocket: unix:///var/run/containerd/containerd.sock
          kubeletExtraArgs: {eviction-hard: 'nodefs.available<0%%,nodefs.inodesFree<0%%,imagefs.available<0%%'}
`
