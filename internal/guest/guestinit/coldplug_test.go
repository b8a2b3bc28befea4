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

// TestDriversOfTEEs has what Linux 6.12 says of the devices, and the aliases of its drivers. The other processor is that of an ordinary VM.
func TestDriversOfTEEs(t *testing.T) {
	const (
		aliases = "platform:sev-guest sev_guest\ncpu:type:x86,ven*fam*mod*:feature:*0116* tdx_guest\nfs-overlay overlay\n"
		plain   = "cpu:type:x86,ven0000fam0006mod008F:feature:,0000,0001,0002,0101,0115,0117\n"
		tdx     = "cpu:type:x86,ven0000fam0006mod008F:feature:,0000,0001,0002,0101,0115,0116,0117\n"
	)
	for name, c := range map[string]struct {
		cpu, platform string
		want          []string
	}{
		"ordinary": {plain, "", nil},
		"SEV-SNP":  {plain, "platform:sev-guest\n", []string{"sev_guest"}},
		"TDX":      {tdx, "", []string{"tdx_guest"}},
	} {
		t.Run(name, func(t *testing.T) {
			devices := []string{filepath.Join(t.TempDir(), "sev-guest"), filepath.Join(t.TempDir(), "cpu")}
			for i, alias := range []string{c.platform, c.cpu} {
				if alias == "" {
					continue
				}
				if err := os.MkdirAll(devices[i], 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(devices[i], "modalias"), []byte(alias), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, driversOf(aliases, modaliases(devices))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
