// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

func TestVSphere(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // where the vCenter has its files
	overCarriers(t, "vsphere", func(t *testing.T) []string {
		s := sim.Start(t)
		t.Cleanup(func() { wantNothing(t, s.Leaks) })
		return []string{
			"GOVC_URL=" + s.URL, "GOVC_USERNAME=" + sim.User, "GOVC_PASSWORD=" + sim.Password, "GOVC_TLS_CA_CERTS=" + s.CAFile,
			"GOVC_FOLDER=" + s.Folder, "GOVC_TEMPLATE=" + sim.Template, "GOVC_RESOURCE_POOL=" + sim.Cluster,
		}
	})
}

// wantNothing fails the test for what a simulator says is left.
func wantNothing(t *testing.T, leaks func() ([]string, error)) {
	t.Helper()
	left, err := leaks()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
