// SPDX-License-Identifier: Apache-2.0

package volumes_test

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/csisanity"
)

// TestCSISanity on the cloud that exists in memory.
func TestCSISanity(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := cloud.CreateInstance(t.Context(), "node", "node", nil, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	csisanity.Run(t, csisanity.Options{Provider: arguments.Checked(cloud), NodeID: node.ID, Zone: node.Zone})
}
