// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"github.com/outrigger/outrigger/provider/config"
)

// TestDiskKey: the OS disk is encrypted with the set that is configured, at the place that
// the kind of VM has for it.
func TestDiskKey(t *testing.T) {
	const set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/d"
	for _, c := range []struct {
		id, encryption          string
		ordinary, disk, profile bool
	}{
		{"", "VMGuestStateOnly", false, false, false},
		{set, "VMGuestStateOnly", true, true, false},
		{set, "VMGuestStateOnly", false, true, false},
		{set, "DiskWithVMGuestState", false, false, true},
	} {
		p := &Provider{cfg: config.Defaults[Config]()}
		p.cfg.DiskKeySet, p.cfg.DiskEncryption, p.cfg.DisableCVM = c.id, c.encryption, c.ordinary
		disk := p.storage("vm", &plan{}).OSDisk.ManagedDisk
		profile := disk.SecurityProfile != nil && disk.SecurityProfile.DiskEncryptionSet != nil && *disk.SecurityProfile.DiskEncryptionSet.ID == set
		if got := disk.DiskEncryptionSet != nil && *disk.DiskEncryptionSet.ID == set; got != c.disk || profile != c.profile {
			t.Errorf("%+v: at the disk %t, at its security profile %t", c, got, profile)
		}
	}
}
