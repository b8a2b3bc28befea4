// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/dockerd"
)

// TestNodesInTheStyleOfDocker is a cluster from a manifest as people have them for
// Cluster API's own Docker provider: in v1beta1 throughout, with nothing about
// providerIDs, host names or kubeadm's checks. All Nodes are Ready, their Machines know
// them, and nothing is left in the end.
func TestNodesInTheStyleOfDocker(t *testing.T) {
	f := newDockerStyle(t, nodeArchive(t), styleOfDocker{services: "10.128.0.0/12", pods: "192.168.0.0/16"})
	ids := f.workload.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}")
	if n := strings.Count(ids, "docker:////"+nodesWork); n != 1+nodeWorkers {
		t.Errorf("providerIDs of Nodes: %q", ids)
	}
	f.delete(t)
}

// TestNodesWithIPv6 is a cluster of IPv6 alone, from a manifest as that of Cluster API's own
// Docker provider. Nodes, pods and Services have IPv6 addresses, and pods reach each other
// and names, also after a restart of the engine.
func TestNodesWithIPv6(t *testing.T) {
	f := newDockerStyle(t, nodeArchive(t), styleOfDocker{
		services: "fd00:100:64::/108", pods: "fd00:100:96::/48", advertise: "localAPIEndpoint: {advertiseAddress: '::', bindPort: 6443}", kubelet: ", node-ip: '::'"})
	f.families(t, "6")
	f.pods(t)
	f.traffic(t)
	f.restart(t)
	f.three(t)
	f.families(t, "6")
	f.delete(t)
}

// TestNodesWithBothFamilies is a cluster of both, whose manifest says so by its ranges alone.
func TestNodesWithBothFamilies(t *testing.T) {
	f := newDockerStyle(t, nodeArchive(t), styleOfDocker{services: "10.128.0.0/12, fd00:100:64::/108", pods: "192.168.0.0/16, fd00:100:96::/48"})
	f.families(t, "4 6")
	f.pods(t)
	f.traffic(t)
	f.delete(t)
}

// newDockerStyle makes the cluster of such a manifest, and waits until all Nodes are Ready.
func newDockerStyle(t *testing.T, file string, s styleOfDocker) *fleet {
	t.Helper()
	f := &fleet{controlPlanes: 1, engine: dockerd.StartDaemon(t, dockerd.Options{Storage: "overlay2"})}
	f.load(t, file)
	f.empty = engineInventory(t, f.engine)
	f.manage(t)
	t.Cleanup(func() {
		if t.Failed() {
			f.show(t)
		}
	})
	f.began = time.Now()
	f.m.Apply(t, s.manifest())
	capi.EventuallyIn(t, nodesPatience, "the cluster's kubeconfig", f.connect)
	f.nodesReady(t)
	f.machinesRunning(t)
	return f
}

// families checks the families of the addresses that Nodes and the Service of the API have.
func (f *fleet) families(t *testing.T, want string) {
	t.Helper()
	nodes := f.workload.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`)
	for line := range strings.Lines(nodes) {
		if got := familiesOf(t, line); got != want {
			t.Errorf("a Node has %s: families %q, want %q", line, got, want)
		}
	}
	ranges := f.workload.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.spec.podCIDRs[*]}{"\n"}{end}`)
	for line := range strings.Lines(ranges) {
		if got := familiesOf(t, strings.ReplaceAll(line, "/", " /")); got != want {
			t.Errorf("a Node's pods have %s: families %q, want %q", line, got, want)
		}
	}
	t.Logf("addresses of Nodes:\n%s\nranges of pods:\n%s", nodes, ranges)
}

// familiesOf returns the families of the addresses in a line, without other words.
func familiesOf(t *testing.T, line string) string {
	t.Helper()
	var list []string
	for _, word := range strings.Fields(line) {
		if addr, err := netip.ParseAddr(word); err == nil && addr.Is4() {
			list = append(list, "4")
		} else if err == nil {
			list = append(list, "6")
		}
	}
	return strings.Join(list, " ")
}

// styleOfDocker is such a manifest.
type styleOfDocker struct {
	// services and pods are ranges, separated by commas.
	services, pods string
	// advertise is a field of kubeadm's configuration, and kubelet are more arguments.
	advertise, kubelet string
}

func (s styleOfDocker) manifest() string {
	replace := strings.NewReplacer("@NAME@", nodesWork, "@VERSION@", nodeVersion, "@WORKERS@", fmt.Sprint(nodeWorkers), "@IMAGE@", cluster.ToolsImage,
		"@SERVICES@", s.services, "@PODS@", s.pods, "@ADVERTISE@", s.advertise, "@KUBELET@", s.kubelet)
	return replace.Replace(dockerManifest)
}

const dockerManifest = `
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: @NAME@, namespace: default}
spec:
  clusterNetwork:
    services: {cidrBlocks: [@SERVICES@]}
    pods: {cidrBlocks: [@PODS@]}
    serviceDomain: cluster.local
  controlPlaneRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: @NAME@-control-plane, namespace: default}
  infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerCluster, name: @NAME@, namespace: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerCluster
metadata: {name: @NAME@, namespace: default}
spec: {}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: @NAME@-control-plane, namespace: default}
spec:
  replicas: 1
  version: @VERSION@
  machineTemplate:
    infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: @NAME@-control-plane, namespace: default}
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer: {certSANs: [localhost, 127.0.0.1, 0.0.0.0]}
    initConfiguration:
      @ADVERTISE@
      nodeRegistration: &registration
        criSocket: unix:///var/run/containerd/containerd.sock
        kubeletExtraArgs: {eviction-hard: 'nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%'@KUBELET@}
    joinConfiguration:
      controlPlane: {@ADVERTISE@}
      nodeRegistration: *registration
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerMachineTemplate
metadata: {name: @NAME@-control-plane, namespace: default}
spec: {template: {spec: {preLoadImages: [@IMAGE@]}}}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: @NAME@-md-0, namespace: default}
spec:
  clusterName: @NAME@
  replicas: @WORKERS@
  selector: {matchLabels: null}
  template:
    spec:
      clusterName: @NAME@
      version: @VERSION@
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: @NAME@-md-0, namespace: default}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: @NAME@-md-0, namespace: default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: DockerMachineTemplate
metadata: {name: @NAME@-md-0, namespace: default}
spec: {template: {spec: {preLoadImages: [@IMAGE@]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
kind: KubeadmConfigTemplate
metadata: {name: @NAME@-md-0, namespace: default}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          criSocket: unix:///var/run/containerd/containerd.sock
          kubeletExtraArgs: {eviction-hard: 'nodefs.available<0%,nodefs.inodesFree<0%,imagefs.available<0%'@KUBELET@}
`
