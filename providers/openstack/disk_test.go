// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
	"github.com/outrigger/outrigger/test/csisanity"
)

func TestCSISanity(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	node, err := create(t.Context(), p, "node")
	if err != nil {
		t.Fatal(err)
	}
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID, Zone: sim.ZoneA})
}

// TestTwoMakersOfADisk: the volume of one that came second goes, and both have the first.
func TestTwoMakersOfADisk(t *testing.T) {
	c := sim.Start(t)
	a, b := mustOpen(t, simConfig(c)), mustOpen(t, simConfig(c))
	spec := provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags("key")}
	c.World.Script(cloudsim.Slow("volume:create", 50*time.Millisecond).Repeated(2)) // both look before either has made one
	ids := make(chan string, 2)
	for _, p := range []*Provider{a, b} {
		go func() {
			d, err := p.CreateDisk(t.Context(), "key", spec)
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- d.ID
		}()
	}
	first, second := <-ids, <-ids
	if first != second {
		t.Errorf("disks %s and %s", first, second)
	}
	if err := a.DeleteDisk(t.Context(), first); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestDisksWithoutAccess: a policy that the project lacks is not taken for a disk that is
// not there.
func TestDisksWithoutAccess(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	c.Deny("volume:get", "volume:get_all", "volume:create")
	_, err := p.CreateDisk(t.Context(), "key", provider.DiskSpec{Bytes: 1})
	if !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteDisk(t.Context(), "00000000-0000-4000-8000-000000000000"); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"volume:create", "volume:get", "volume:get_all", "volume:delete", "volume:extend",
		"os_compute_api:os-volumes-attachments:create", "os_compute_api:os-volumes-attachments:delete",
	} {
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "refused": cloudsim.Refused(action, 503, "serviceUnavailable"),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "conflict": cloudsim.Refused(action, 409, "conflictingRequest"),
		} {
			t.Run(action+" "+name, func(t *testing.T) {
				c := sim.Start(t)
				p := mustOpen(t, simConfig(c))
				node, err := create(t.Context(), p, "node")
				if err != nil {
					t.Fatal(err)
				}
				c.World.Script(fault)
				if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID); err != nil && !provider.Retryable(err) {
					t.Errorf("an error that nobody tries again: %v", err)
				}
				if err := errors.Join(cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
					t.Fatal(err)
				}
				wantNothing(t, c)
			})
		}
	}
}

// TestZoneOfCinder: a zone that Nova does not have is none that a server can be asked for in.
func TestZoneOfCinder(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	node, err := create(t.Context(), p, "node")
	if err != nil {
		t.Fatal(err)
	}
	for zone, want := range map[string]string{sim.ZoneA: sim.ZoneA, sim.ZoneOfCinder: ""} {
		d, err := p.CreateDisk(t.Context(), zone, provider.DiskSpec{Bytes: 1 << 30, Zone: zone, Tags: cloudsim.OwnerTags(zone)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.Zone != want {
			t.Errorf("zone %s: %+v, %v; want %q", zone, got, err, want)
		}
		if _, err := p.AttachDisk(t.Context(), d.ID, node.ID); err != nil {
			t.Errorf("zone %s: %v", zone, err)
		}
	}
}
