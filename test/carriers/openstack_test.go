// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
	"github.com/outrigger/outrigger/test/tier"
)

func TestOpenStack(t *testing.T) {
	overCarriers(t, "openstack", tier.Checks(), func(t *testing.T) []string {
		c := sim.Start(t)
		t.Cleanup(func() { wantNothing(t, c.Leaks) })
		return []string{
			"OS_AUTH_URL=" + c.URL, "OS_CACERT=" + c.CAFile, "OS_REGION_NAME=" + sim.Region, "OS_APPLICATION_CREDENTIAL_ID=" + sim.AppCredID,
			"OS_APPLICATION_CREDENTIAL_SECRET=" + sim.AppCredSecret, "OPENSTACK_IMAGE_ID=" + sim.Image, "OPENSTACK_FLAVOR=m1.small",
			"OPENSTACK_FLAVORS=m1.*", "OPENSTACK_NETWORK_ID=" + sim.Network, "OPENSTACK_FLOATING_NETWORK_ID=" + sim.ExternalNetwork,
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
