// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conformance_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

const peerObjects = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevCluster
metadata: {annotations: {example.com/any: any}} # without one its controller panics
spec: {backend: {inMemory: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevClusterTemplate
spec: {template: {spec: {backend: {inMemory: {}}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
spec: {template: {spec: {backend: {inMemory: {vm: {provisioning: {startupDuration: 100ms}}}}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
spec: {template: {spec: {backend: {inMemory: {vm: {provisioning: {startupDuration: 200ms}}}}}}}
`

// What the kit finds of the peer, by what it must say.
var peerRed = map[string]string{
	"machine-same-names":           "share the providerID",
	"pause-cluster":                "finalizers was",
	"pause-cluster-annotation":     "finalizers was",
	"pause-machine":                "finalizers was",
	"pause-machine-annotation":     "finalizers was",
	"delete-cluster-without-owner": "in deletion",
	"delete-machine-early":         "in deletion",
	"delete-machine-orphan":        "in deletion",
}

// peerGreen are some of the promises that the peer keeps.
var peerGreen = []string{
	"crd-name", "crd-contract-label", "cluster-provisioned", "machine-provisioned", "machine-conditions", "delete-machine", "template-dry-run",
}

// TestPeer: the kit judges a provider that is not ours, of which it knows
// nothing but its objects: Cluster API's own for tests, with machines in memory.
func TestPeer(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	testns.RequireRoot(t)
	r := capi.NewRepository(t)
	r.Peer(t)
	m := capi.Start(t, r)
	definitions(t, m, "--core", "cluster-api")
	m.Apply(t, m.Clusterctl(t, "generate", "provider", "--infrastructure", "docker"))
	m.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
	program := m.PeerProgram()
	program.Args = append(program.Args, filter)
	manager := m.Run(t, "infrastructure-docker", program)
	k := kitFor(t, m, peerObjects)
	k.outside = []string{"--restart-command", restartCommand(t, manager)}
	if all(t) {
		k.flags = append(k.flags, "--provision-timeout=30s", "--delete-timeout=30s")
		wantPeer(t, k.alone(t, names(t)))
		return
	}
	wantPeer(t, k.alone(t, peerGreen))
	// A check that fails does not look on any longer: a slow machine has time to write.
	k.flags = append(k.flags, "--delete-timeout=5s", "--quiet=60s")
	wantPeer(t, k.atOnce(t, slices.Collect(maps.Keys(peerRed))))
}

// wantPeer: the kit finds what is known, and finds nothing where it is known
// that there is nothing.
func wantPeer(t *testing.T, results []checkreport.Check) {
	t.Helper()
	for _, c := range results {
		says, red := peerRed[c.Name]
		said := strings.Join(c.Messages, "; ")
		if red && (c.Status != "failed" || !strings.Contains(said, says)) || slices.Contains(peerGreen, c.Name) && c.Status != "passed" {
			t.Errorf("%s: %s: %s", c.Name, c.Status, said)
		}
	}
}
