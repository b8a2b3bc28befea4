// SPDX-License-Identifier: Apache-2.0

//go:build integration

package azure

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient: Microsoft's for Python.
func TestAnotherClient(t *testing.T) {
	c := New(t, Options{})
	client := cloudsim.Client{Module: "msal, azure.mgmt.compute.v2022_08_01", Install: "make setup", Path: cloudsim.Unpacked("azure-sdk")}
	client.Run(t, nil, c.Server.URL, c.Server.CAFile, TenantID, ClientID, ClientSecret, scope, SubscriptionID, ResourceGroup, Region, SubnetID, SecurityGroupID, ImageID)
	if wrong := append(c.Wrong(), c.World.Violations()...); len(wrong) > 0 {
		t.Error(wrong)
	}
	if left := c.World.Own(); len(left) > 0 {
		t.Error(left)
	}
}
