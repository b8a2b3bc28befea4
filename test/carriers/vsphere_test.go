// SPDX-License-Identifier: Apache-2.0

//go:build integration && !race

package carriers

import (
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
	"github.com/outrigger/outrigger/test/tier"
)

// TestVSphere is not for the race detector, which finds races in vcsim.
func TestVSphere(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // where the vCenter has its files
	overCarriers(t, "vsphere", tier.Checks(), func(t *testing.T) []string {
		s := sim.Start(t)
		t.Cleanup(func() { wantNothing(t, s.Leaks) })
		return []string{
			"GOVC_URL=" + s.URL, "GOVC_USERNAME=" + sim.User, "GOVC_PASSWORD=" + sim.Password, "GOVC_TLS_CA_CERTS=" + s.CAFile,
			"GOVC_FOLDER=" + s.Folder, "GOVC_TEMPLATE=" + sim.Template, "GOVC_RESOURCE_POOL=" + sim.Cluster,
		}
	})
}
