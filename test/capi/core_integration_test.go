// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/internal/testns"
	"github.com/outrigger/outrigger/test/capi"
)

func TestMain(m *testing.M) { testns.Main(m) }

// TestPeer: what the other tests stand on works without a provider of ours,
// with the in-memory machines of Cluster API's own test provider.
func TestPeer(t *testing.T) {
	if os.Getenv("OUTRIGGER_CAPI_PEER") == "" {
		t.Skip("the other tests prove the same and more, with our provider; to look for a fault in what they stand on, run: OUTRIGGER_CAPI_PEER=1 go test -tags integration -run TestPeer ./test/capi")
	}
	r := capi.NewRepository(t)
	r.Peer(t)
	m := capi.Start(t, r)
	m.Init(t, "docker")
	m.Run(t, "infrastructure-docker", m.PeerProgram())
	m.Apply(t, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: peer, namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [192.168.0.0/16]}, services: {cidrBlocks: [10.128.0.0/12]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: peer}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: peer}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata: {name: peer, namespace: default}
spec: {backend: {inMemory: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: peer, namespace: default}
spec: {template: {spec: {backend: {inMemory: {}}}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: peer, namespace: default}
spec:
  version: v1.36.3
  replicas: 1
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: peer}}}
`)
	m.Kubectl(t, "wait", "cluster/peer", "--for=condition=Available", "--timeout=4m")
	m.Kubectl(t, "delete", "cluster", "peer", "--timeout=4m")
}
