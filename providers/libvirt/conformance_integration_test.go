// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"slices"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

// some are checks for which a real daemon may differ from the one of
// TestFakeConformance, which sees every check: each starts QEMU several times.
var some = []string{
	"create", "create-user-data-once", "create-unknown-image", "key-concurrent-processes", "key-lost-reply", "cancel-midway",
	"delete-repeated", "list-owner", "get-absent", "console", "power", "verify", "teardown",
}

// TestConformance shares one daemon between the checks, which have keys and
// tags of their own.
func TestConformance(t *testing.T) {
	d := start(t, libvirtd.Options{})
	cfg := testConfig(d)
	open := func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider {
			p, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Parallel: 4, Leaks: d.Leftovers,
			ReadUserData: func(_ context.Context, id string) (string, error) { return seedOf(d, id) },
		}
	}
	for _, check := range conformance.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			if !slices.Contains(some, check.Name) {
				tier.OnlyAll(t)
			}
			check.Run(t, func(conformance.T) conformance.Subject { return open(t) })
		})
	}
}
