// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/tier"
)

// diskVictimVar names the instance to which a victim attaches disks.
const diskVictimVar = "QEMU_TEST_DISK_VICTIM_INSTANCE"

// diskVictim takes a disk through its life, again and again.
func diskVictim(config, instanceID string) {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		panic(err)
	}
	p, err := New(cfg)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for err == nil {
		err = diskLife(context.Background(), p, instanceID)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// diskLife makes a disk, attaches it, makes it larger, copies it twice, and removes all. It
// also goes on from where a killed one has stopped.
func diskLife(ctx context.Context, p *Provider, instanceID string) error {
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 4 * mib, Tags: ownTags})
	if err != nil {
		return err
	}
	if _, err := p.AttachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	if _, err := p.ResizeDisk(ctx, d.ID, 8*mib); err != nil {
		return err
	}
	s, err := p.CreateSnapshot(ctx, "s", d.ID, ownTags)
	if err != nil {
		return err
	}
	c, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: ownTags})
	if err != nil {
		return err
	}
	if err := p.DetachDisk(ctx, d.ID, instanceID); err != nil {
		return err
	}
	// The source goes last: the next copies would be of another.
	return errors.Join(p.DeleteSnapshot(ctx, s.ID), p.DeleteDisk(ctx, c.ID), p.DeleteDisk(ctx, d.ID))
}

// TestUserOfDisksKilledAtAnyInstant: the next one goes on, or begins again.
func TestUserOfDisksKilledAtAnyInstant(t *testing.T) {
	cfg := testConfig(t)
	p := open(t, cfg)
	t.Cleanup(func() { deleteDisks(t, p) })
	i := create(t, p, "a")
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(diskVictimVar, i.ID)
	for round := range tier.Rounds(t, 16, 64) {
		killAfter(t, string(text), time.Duration(round*29)*time.Millisecond)
		if err := diskLife(t.Context(), p, i.ID); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if left := leftInQEMU(t, p, i); len(left) > 0 {
			t.Errorf("round %d: QEMU has %v", round, left)
		}
		p.store.tidy()
		for _, s := range []records[*volume]{p.store.disks(), p.store.snapshots()} {
			if _, err := os.Stat(s.dir()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("round %d: %v is left, %v", round, tree(s.dir()), err)
			}
		}
	}
}

// leftInQEMU returns the disks and jobs that a VM's QEMU has.
func leftInQEMU(t *testing.T, p *Provider, i *provider.Instance) (left []string) {
	t.Helper()
	err := p.withMonitor(t.Context(), i.ID, plugWait, func(_ context.Context, m *monitor) error {
		var nodes, devices, jobs []struct {
			Name, ID string
			Node     string `json:"node-name"`
		}
		err := errors.Join(m.call("query-named-block-nodes", map[string]bool{"flat": true}, &nodes),
			m.call("qom-list", map[string]string{"path": "/machine/peripheral"}, &devices), m.call("query-jobs", nil, &jobs))
		for _, one := range append(append(nodes, devices...), jobs...) {
			for _, name := range []string{one.Node, one.Name, one.ID} {
				if strings.Contains(name, "disk-") {
					left = append(left, name)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}
