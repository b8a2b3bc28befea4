// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
	"github.com/outrigger/outrigger/test/tier"
)

func TestIBMCloudPowerVS(t *testing.T) {
	overCarriers(t, "ibmcloud-powervs", tier.Checks(), func(t *testing.T) []string {
		s := sim.New(t, cloudsim.NewWorld())
		t.Cleanup(func() {
			for _, left := range s.World.Own() {
				t.Errorf("left behind: %s", left)
			}
		})
		return []string{
			"IBMCLOUD_API_KEY=" + sim.APIKey, "POWERVS_ZONE=" + sim.Zone, "POWERVS_SERVICE_INSTANCE_ID=" + sim.Instance,
			"POWERVS_NETWORK_ID=" + sim.PublicNetwork, "POWERVS_IMAGE_ID=" + sim.Image, "POWERVS_SSH_KEY_NAME=" + sim.SSHKey,
			"POWERVS_ENDPOINT=" + s.Server.URL, "IBMCLOUD_IAM_ENDPOINT=" + s.Server.URL + "/identity/token", "POWERVS_CA_FILE=" + s.Server.CAFile,
		}
	})
}
