// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/testns"
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
	m.Run(t, capi.PeerLabel, m.PeerProgram())
	m.Apply(t, capi.PeerCluster(capi.Wanted{Name: "peer", Namespace: "default", Version: version, ControlPlanes: 1, Workers: 1}))
	m.Kubectl(t, "wait", "cluster/peer", "--for=condition=Available", "--timeout=4m")
	m.Kubectl(t, "delete", "cluster", "peer", "--timeout=4m")
}
