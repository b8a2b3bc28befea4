// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

// TestConformance shares one daemon between the checks, which have keys and
// tags of their own. TestFakeConformance sees every check; here each starts QEMU
// several times.
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
			DisksPerInstance: maxDisks,
			WriteDisk:        func(id string, data []byte) error { return writeHead(t, d, id, data) },
			ReadDisk:         func(id string, n int) ([]byte, error) { return readHead(t, d, id, n) },
			Foreign:          func(map[string]string) (conformance.Foreign, error) { return foreign(t, d), nil },
			ReadUserData:     func(_ context.Context, id string) (string, error) { return seedOf(d, id) },
		}
	}
	tier.Conformance(t, open)
}
