// SPDX-License-Identifier: Apache-2.0

//go:build integration

package alibabacloud

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient: Apache Libcloud, which signs as was usual before, and reads
// XML.
func TestAnotherClient(t *testing.T) {
	c := New(t, Options{})
	cloudsim.Libcloud.Run(t, nil, "https://"+c.Endpoint, c.CAFile, AccessKeyID, AccessSecret, Region, Image, VSwitch, Group, KeyPair)
	if v := c.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if left := c.World.Own(); len(left) > 0 {
		t.Error(left)
	}
}
