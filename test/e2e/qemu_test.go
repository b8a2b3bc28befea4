// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
)

func init() {
	clouds["qemu"] = cloud{
		daemons:     []string{"provider-qemu"},
		prepare:     func(*testing.T, *cluster.Node) map[string]string { return nil },
		instances:   qemuInstances,
		machineType: machineType{name: "2x384", cpus: 2, mib: 384},
		image:       "podvm.qcow2",
	}
}

// qemuInstances reads the provider's folder on the node. Nobody but the node
// sees it.
func qemuInstances(t *testing.T, s *suite) []string {
	t.Helper()
	if s.state == "" {
		return claimed(t, s)
	}
	entries, err := os.ReadDir(s.state)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}
