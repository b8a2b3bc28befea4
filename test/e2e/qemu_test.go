// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/deployed"
)

func init() {
	clouds["qemu"] = cloud{
		daemons:     []string{"provider-qemu"},
		prepare:     func(*testing.T, *ownCluster) map[string]string { return map[string]string{"QEMU_TPM": "uefi"} },
		instances:   qemuInstances,
		machineType: machineType{name: "2x1024", cpus: 2, mib: 1024},
		image:       "podvm.qcow2",
		csi:         []string{"CLOUD_PROVIDER=qemu", "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH=unix:///run/peerpod/provider-qemu.sock"},
	}
}

// qemuInstances reads the provider's folder on the node. Nobody but the node
// sees it.
func qemuInstances(t *testing.T, s *suite) []string {
	t.Helper()
	if s.own == nil {
		return claimed(t, s)
	}
	entries, err := os.ReadDir(deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/instances"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}
