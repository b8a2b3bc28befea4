// SPDX-License-Identifier: Apache-2.0

//go:build integration

package ibmcloud

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
	programs "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// settings are a configuration as variables.
func (s *stand) settings() []string {
	return []string{
		"IBMCLOUD_API_KEY=" + sim.APIKey, "IBMCLOUD_IAM_ENDPOINT=" + s.Server.URL + "/identity/token", "IBMCLOUD_VPC_ENDPOINT=" + s.Server.URL + "/v1",
		"IBMCLOUD_ZONE=" + strings.Join(sim.Zones, ","), "IBMCLOUD_VPC_SUBNET_ID=" + strings.Join(sim.Subnets, ","), "IBMCLOUD_VPC_ID=" + sim.VPC,
		"IBMCLOUD_PODVM_IMAGE_ID=" + sim.Image + "," + sim.S390X, "IBMCLOUD_CA_FILE=" + s.Server.CAFile,
		"IBMCLOUD_PODVM_INSTANCE_PROFILE_NAME=bx2-2x8", "IBMCLOUD_PODVM_INSTANCE_PROFILE_LIST=*",
	}
}

// TestAsProcessPlugin runs provider-check, as a user does, on the program.
func TestAsProcessPlugin(t *testing.T) {
	plugin := programs.BinaryAs(t, "provider-ibmcloud", Name)
	s := newStand(t)
	s.Deny() // nothing; but its lock lets requests of another process see how the cloud was set up
	cmd := exec.CommandContext(t.Context(), programs.Binary(t, "provider-check"), "--plugin", plugin, "--run", tier.Checks(), "--parallel", "4")
	cmd.Env = append(os.Environ(), s.settings()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	s.wantNothing(t)
}
