// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gcp

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
	programs "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// settings are a configuration as variables.
func (s *stand) settings() []string {
	return []string{
		"GCP_CREDENTIALS=" + s.ServiceAccount(), "GCP_PROJECT_ID=" + sim.Project, "GCP_ZONE=" + strings.Join(sim.Zones, ","),
		"GCP_NETWORK=" + sim.Network, "GCP_SUBNETWORK=" + sim.Subnetwork, "PODVM_IMAGE_NAME=" + sim.Image, "GCP_INSTANCE_TYPES=*",
		"GCP_ENDPOINT=" + s.Server.URL, "GCP_RESOURCE_MANAGER_ENDPOINT=" + s.Server.URL, "GCP_CA_FILE=" + s.Server.CAFile,
	}
}

// TestAsProcessPlugin runs provider-check, as a user does, on the program.
func TestAsProcessPlugin(t *testing.T) {
	plugin := programs.BinaryAs(t, "provider-gcp", Name)
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
