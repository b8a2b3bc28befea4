// SPDX-License-Identifier: Apache-2.0

//go:build integration

package gcp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient: Apache Libcloud.
func TestAnotherClient(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	s.MaxPage = 2
	key := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(key, []byte(s.ServiceAccount()), 0o600); err != nil {
		t.Fatal(err)
	}
	cloudsim.Libcloud.Run(t, nil, s.Server.URL, s.Server.CAFile, Email, key, Project, Zones[0], Image, Network, Subnetwork)
	if v := s.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if left := s.World.Own(); len(left) > 0 {
		t.Error(left)
	}
}
