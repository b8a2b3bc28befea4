// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"fmt"
	"path/filepath"
	"testing"
)

// PeerLabel is that of Cluster API's own provider for tests.
const PeerLabel = "infrastructure-docker"

// Peer adds Cluster API's own provider for tests as infrastructure provider
// docker; its machines may be in memory.
func (r *Repository) Peer(t testing.TB) {
	t.Helper()
	components := latest(t, filepath.Join(r.programs, "providers"), PeerLabel, "infrastructure-components.yaml")
	r.Infrastructure(t, "docker", components)
}

// PeerProgram is the program of [Repository.Peer].
func (m *Management) PeerProgram() Program {
	return Program{Path: filepath.Join(m.repository.programs, "capd"), Env: []string{"POD_IP=127.0.0.1"}}
}

// PeerCluster is a cluster of machines in the peer's memory.
func PeerCluster(w Wanted) string {
	return fmt.Sprintf(`---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  clusterNetwork: {pods: {cidrBlocks: [192.168.0.0/16]}, services: {cidrBlocks: [10.128.0.0/12]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: %[1]s}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: %[1]s}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata: {name: %[1]s, namespace: %[2]s}
spec: {backend: {inMemory: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: %[1]s, namespace: %[2]s}
spec: {template: {spec: {backend: {inMemory: {}}}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  version: %[3]s
  replicas: %[4]d
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: %[1]s}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: %[1]s, namespace: %[2]s}
spec: {template: {spec: {joinConfiguration: {nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock"}}}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: %[1]s-md-0, namespace: %[2]s}
spec:
  clusterName: %[1]s
  replicas: %[5]d
  selector: {matchLabels: {}}
  template:
    spec:
      clusterName: %[1]s
      version: %[3]s
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: %[1]s}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: %[1]s}
`, w.Name, w.Namespace, w.Version, w.ControlPlanes, w.Workers)
}
