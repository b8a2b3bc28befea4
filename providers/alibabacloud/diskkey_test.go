// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// TestDiskKey: the system disk is encrypted with the key that is configured, by parameters
// that the cloud's model has.
func TestDiskKey(t *testing.T) {
	c := newCloud(t, sim.Options{})
	for key, id := range map[string]string{"plain": "", "encrypted": "key-hzz1"} {
		cfg := settings(c)
		cfg.DiskKey = id
		p := newProvider(t, cfg)
		i := mustCreate(t, p, "disk-"+key, provider.InstanceTypeSpec{})
		all := c.Requests()
		r := all[len(all)-1]
		if r.Get("SystemDisk.KMSKeyId") != id || (r.Get("SystemDisk.Encrypted") == "true") != (id != "") {
			t.Errorf("%s: %v", key, r)
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	wantNothing(t, c)
}
