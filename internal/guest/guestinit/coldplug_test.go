// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDriversOfDevices(t *testing.T) {
	sysBus := t.TempDir()
	for path, alias := range map[string]string{
		"pci/devices/0000:00:03.0":  "pci:v00001D0Fd0000EC20sv00001D0Fsd0000EC20bc02sc00i00\n",
		"pci/devices/0000:00:04.0":  "pci:v00001D0Fd0000EC20sv00001D0Fsd0000EC20bc02sc00i00\n",
		"pci/devices/0000:00:1f.0":  "pci:v00008086d00002918sv00001AF4sd00001100bc06sc01i00\n",
		"vmbus/devices/f8615163":    "vmbus:635161f83edfc546913ff2d2f965ed0e\n",
		"virtio/devices/no-aliases": "",
	} {
		dir := filepath.Join(sysBus, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if alias == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "modalias"), []byte(alias), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const aliases = "pci:v00001D0Fd0000EC20sv*sd*bc*sc*i* ena\nvmbus:635161f83edfc546913ff2d2f965ed0e hv_netvsc\nfs-overlay overlay\n"
	if diff := cmp.Diff([]string{"ena", "hv_netvsc"}, driversOf(aliases, deviceAliases(sysBus))); diff != "" {
		t.Error(diff)
	}
}
