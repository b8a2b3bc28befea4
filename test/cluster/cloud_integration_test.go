// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cluster_test

import (
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
)

// TestGuestsLeaveNothing: neither one that is deleted nor one that a test has
// forgotten.
func TestGuestsLeaveNothing(t *testing.T) {
	testns.RequireRoot(t)
	var dir string
	t.Run("cloud", func(t *testing.T) {
		c := cluster.StartCloud(t, fake.Options{})
		dir = filepath.Dir(c.Socket)
		var ids []string
		for _, key := range []string{"deleted", "forgotten"} {
			i, err := c.CreateInstance(t.Context(), key, key, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, i.ID)
		}
		if n := len(c.Guests()); n != 2 {
			t.Errorf("%d guests", n)
		}
		for range 2 {
			if err := c.DeleteInstance(t.Context(), ids[0]); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(c.Guests()); n != 1 {
			t.Errorf("%d guests after one was deleted", n)
		}
	})
	nothingIsLeft(t, dir)
}
