// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"context"
	"testing"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/csisanity"
)

// TestCSISanity attaches disks to a VM that runs.
func TestCSISanity(t *testing.T) {
	p, err := New(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	node, err := p.CreateInstance(t.Context(), "node", "node", nil, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.DeleteInstance(context.Background(), node.ID); err != nil {
			t.Error(err)
		}
	})
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID, Zone: node.Zone})
}
