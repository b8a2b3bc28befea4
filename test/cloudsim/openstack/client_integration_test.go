// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openstack

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient: Apache Libcloud.
func TestAnotherClient(t *testing.T) {
	c := Start(t)
	cloudsim.Libcloud.Run(t, nil, c.URL+"/auth/tokens", c.CAFile, User, Password, Domain, Project, Region, Image, Network, Group, ExternalNetwork, KeyName)
	if wrong := append(c.Wrong(), c.World.Violations()...); len(wrong) > 0 {
		t.Error(wrong)
	}
	if left := c.World.Own(); len(left) > 0 {
		t.Error(left)
	}
}
