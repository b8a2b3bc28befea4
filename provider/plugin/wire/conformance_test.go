// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// TestConformance runs the suite on the fake behind the wire. To reopen is to
// start another server for the same cloud, as a new process would be.
func TestConformance(t *testing.T) {
	for name, options := range map[string]fake.Options{
		"plain":    {},
		"two nics": {DedicatedNIC: true},
		"slow":     {Latency: 3 * time.Millisecond},
		"eventual": {Eventual: fake.Eventual{Lists: 3, Gets: 2, Lingers: 3}},
		"slow creation": {Faults: []fake.Fault{
			fake.Slow(fake.OpCreate, 30*time.Millisecond).Repeated(-1),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) conformance.Subject { return subject(t, options) })
		})
	}
}

func subject(t *testing.T, options fake.Options) conformance.Subject {
	options.Disks = fake.DiskOptions{PerInstance: 2, SnapshotGets: 2}
	cloud, err := fake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	late := &lateCleanup{TB: t}
	t.Cleanup(late.run)
	open := func(c *fake.Cloud) provider.Provider {
		return start(late, wire.Options{Name: "fake", Cloud: fake.NewManager(), Configured: c}).provider(late, "test", nil)
	}
	return conformance.Subject{
		Provider: open(cloud),
		Reopen:   func() provider.Provider { return open(cloud.Reopen()) },
		NoAccess: map[string]func() provider.Provider{"revoked credentials": func() provider.Provider { return open(cloud.Revoked()) }},
		Leaks: func() (names []string, err error) {
			lines, err := cloud.Leaks()
			for _, line := range lines {
				names = append(names, fmt.Sprintf("%s %s", line.Kind, line.ID))
			}
			return names, err
		},
		OtherZone: "fake-zone-b", DisksPerInstance: options.Disks.PerInstance,
		WriteDisk: cloud.WriteDisk, ReadDisk: func(id string, _ int) ([]byte, error) { return cloud.ReadDisk(id) },
		Foreign: func(tags map[string]string) (conformance.Foreign, error) {
			disk, snapshot, err := cloud.AddForeign(tags)
			return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: func() error { return cloud.RemoveForeign(disk, snapshot) }}, err
		},
	}
}

// lateCleanup cleans up after the check, which uses what it reopens until its
// own clean-up has ended.
type lateCleanup struct {
	testing.TB
	functions []func()
}

func (l *lateCleanup) Cleanup(f func()) { l.functions = append(l.functions, f) }

func (l *lateCleanup) run() {
	for _, f := range slices.Backward(l.functions) {
		f()
	}
}
