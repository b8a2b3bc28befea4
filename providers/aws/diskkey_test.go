// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/outrigger/outrigger/provider/config"
)

// TestDiskKey: the volumes are encrypted with the key that is configured.
func TestDiskKey(t *testing.T) {
	for _, key := range []string{"", "alias/pods"} {
		p := &Provider{cfg: config.Defaults[Config]()}
		p.cfg.DiskKey = key
		pl := &plan{}
		pl.image.root = "/dev/xvda"
		for _, disk := range p.disks(pl) {
			if sdk.ToString(disk.Ebs.KmsKeyId) != key || sdk.ToBool(disk.Ebs.Encrypted) != (key != "") {
				t.Errorf("key %q: %+v", key, disk.Ebs)
			}
		}
	}
}
