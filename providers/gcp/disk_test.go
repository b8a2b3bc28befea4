// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
	"github.com/outrigger/outrigger/test/csisanity"
)

func TestCSISanity(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node := create(t, p, spec("node"))
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID, Zone: node.Zone, Bytes: 10 << 30})
}

func diskSpec(key string) provider.DiskSpec {
	return provider.DiskSpec{Bytes: 10 << 30, Tags: cloudsim.OwnerTags(key)}
}

func mustDisk(t *testing.T, p *Provider, key string) *provider.Disk {
	t.Helper()
	d, err := p.CreateDisk(t.Context(), key, diskSpec(key))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestHandlesOfGooglesDriver: a volumeHandle of pd.csi.storage.gke.io is the id of a disk, if that is one of the project's zones.
func TestHandlesOfGooglesDriver(t *testing.T) {
	p := newStand(t).mustOpen(t)
	d := mustDisk(t, p, "d")
	path := "/zones/" + strings.Replace(d.ID, "/", "/disks/", 1)
	if got, err := p.GetDisk(t.Context(), "projects/"+p.cfg.Project+path); err != nil || got.ID != d.ID {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range []string{"projects/another" + path, "projects/" + p.cfg.Project + "/regions/r1/disks/" + base(path)} {
		if got, err := p.GetDisk(t.Context(), other); !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), "project "+p.cfg.Project) {
			t.Errorf("%s: %+v, %v", other, got, err)
		}
	}
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	var faults []cloudsim.Fault
	for _, action := range []string{
		"disks.insert", "disks.get", "disks.delete", "disks.resize", "disks.createSnapshot", "disks.aggregatedList", "snapshots.get",
		"snapshots.delete", "instances.attachDisk", "instances.detachDisk", "instances.get", "zoneOperations.get",
	} {
		action = "compute." + action
		faults = append(faults, cloudsim.LostReply(action), cloudsim.Refused(action, http.StatusServiceUnavailable, "backendError").Repeated(6),
			cloudsim.GoesOn(action, 10*time.Millisecond), cloudsim.Refused(action, http.StatusForbidden, "rateLimitExceeded").Repeated(3))
		if !strings.HasSuffix(strings.ToLower(action), "get") && !strings.HasSuffix(action, "List") {
			faults = append(faults, cloudsim.Refused(action, http.StatusBadRequest, "resourceNotReady"))
		}
	}
	for _, kind := range []string{"insertDisk", "createSnapshot", "attachDisk"} {
		faults = append(faults, cloudsim.Fault{Action: sim.Late(kind, sim.Zones[0]), Code: "INTERNAL_ERROR", Message: "late"},
			cloudsim.Fault{Action: sim.Late(kind, sim.Zones[0]), Code: "RESOURCE_OPERATION_RATE_EXCEEDED", Message: "late"})
	}
	for _, fault := range faults {
		t.Run(strings.Join([]string{fault.Action, fault.Code, fault.Delay.String()}, " "), func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			p := s.mustOpen(t)
			node := create(t, p, spec("node"))
			s.World.Script(fault)
			if err := cloudsim.DiskLife(t.Context(), p, 10<<30, node.ID); err != nil && !provider.Retryable(err) {
				t.Errorf("an error that nobody tries again: %v", err)
			}
			if err := errors.Join(cloudsim.DiskLife(t.Context(), p, 10<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
				t.Fatal(err)
			}
			s.wantNothing(t)
		})
	}
}

// TestDiskRequestThatComesLate: it makes nothing again that was deleted meanwhile.
func TestDiskRequestThatComesLate(t *testing.T) {
	s := newStand(t)
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("compute.disks.insert", hold))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for s.World.Calls()["compute.disks.insert"] == 0 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if d, err := s.mustOpen(t).CreateDisk(ctx, "d", diskSpec("d")); err == nil {
		t.Fatalf("%+v", d)
	}
	p := s.mustOpen(t)
	if err := p.DeleteDisk(t.Context(), mustDisk(t, p, "d").ID); err != nil {
		t.Fatal(err)
	}
	hold.Release()
	s.wantNothing(t)
}

// TestDisksStay: an instance lets them go when it is deleted, and each has a name of its own in the guest.
func TestDisksStay(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node := create(t, p, spec("node"))
	var seen []string
	disks := []*provider.Disk{mustDisk(t, p, "a"), mustDisk(t, p, "b")}
	for _, d := range disks {
		a, err := p.AttachDisk(t.Context(), d.ID, node.ID)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, a.Serial)
	}
	var names []string
	for _, d := range s.Instance(node.ID)["disks"].([]any)[1:] {
		names = append(names, d.(map[string]any)["deviceName"].(string))
		if d.(map[string]any)["autoDelete"] != false {
			t.Errorf("it is deleted with the instance: %v", d)
		}
	}
	if diff := cmp.Diff(names, seen); diff != "" || seen[0] == seen[1] || len(seen[0]) > longestSerial {
		t.Errorf("device names -cloud +attachments\n%s", diff)
	}
	if err := p.DeleteInstance(t.Context(), node.ID); err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		for err := p.DeleteDisk(t.Context(), d.ID); err != nil; err = p.DeleteDisk(t.Context(), d.ID) {
			if !errors.Is(err, provider.ErrInUse) {
				t.Fatal(err)
			}
		}
	}
	s.wantNothing(t)
}

func TestDiskTypesAndZones(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	source := mustDisk(t, p, "source").ID
	for name, c := range map[string]struct {
		spec       provider.DiskSpec
		zone, kind string
		mentions   string
	}{
		"default":                {provider.DiskSpec{}, sim.Zones[0], "pd-standard", ""},
		"another":                {provider.DiskSpec{Type: "pd-ssd", Zone: sim.Zones[2]}, sim.Zones[2], "pd-ssd", ""},
		"a clone":                {provider.DiskSpec{FromDisk: source}, sim.Zones[0], "pd-standard", ""},
		"a clone elsewhere":      {provider.DiskSpec{FromDisk: source, Zone: sim.Zones[1]}, "", "", sim.Zones[1]},
		"a clone of its type":    {provider.DiskSpec{FromDisk: source, Type: "pd-ssd"}, "", "", "pd-ssd"},
		"a region there is not":  {provider.DiskSpec{Zone: "moon-1-a"}, "", "", "moon-1-a"},
		"a type there is not":    {provider.DiskSpec{Type: "pd-gold"}, "", "", "pd-gold"},
		"a size there is not":    {provider.DiskSpec{Bytes: 70000 << 30}, "", "", "65536 GiB"},
		"less than the type has": {provider.DiskSpec{Bytes: 1 << 30, Limit: 2 << 30}, "", "", "at least 10"},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Tags = cloudsim.OwnerTags("key")
			if c.spec.FromDisk == "" && c.spec.Bytes == 0 {
				c.spec.Bytes = 10 << 30
			}
			d, err := p.CreateDisk(t.Context(), "key", c.spec)
			if c.mentions != "" {
				if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), c.mentions) {
					t.Errorf("%+v, %v; want ErrInvalidArgument that names %s", d, err, c.mentions)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Zone != c.zone || d.Type != c.kind {
				t.Errorf("%+v", d)
			}
			if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResizeAtOnce: the cloud refuses the later of two calls, since the disk is as large by then.
func TestResizeAtOnce(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	d := mustDisk(t, p, "d")
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("compute.disks.resize", hold))
	done := make(chan error, 1)
	go func() {
		_, err := p.ResizeDisk(t.Context(), d.ID, 20<<30)
		done <- err
	}()
	for s.World.Calls()["compute.disks.resize"] == 0 {
		runtime.Gosched()
	}
	if _, err := s.mustOpen(t).ResizeDisk(t.Context(), d.ID, 20<<30); err != nil {
		t.Error(err)
	}
	hold.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := p.ResizeDisk(t.Context(), d.ID, 65536<<30+1); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("a size there is not: %v", err)
	}
}

// TestDiskOfAnotherZone: a key has one disk in all zones.
func TestDiskOfAnotherZone(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	d, other := mustDisk(t, p, "d"), diskSpec("d")
	other.Zone = sim.Zones[1]
	if again, err := p.CreateDisk(t.Context(), "d", other); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("%+v, then %+v, %v", d, again, err)
	}
}

// TestFullDisks: what the cloud says late, and of Hyperdisk (an error that users of its driver report).
func TestFullDisks(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node, d := create(t, p, spec("node")), mustDisk(t, p, "d")
	s.World.Script(cloudsim.Fault{
		Action: sim.Late("attachDisk", sim.Zones[0]), Code: "UNSUPPORTED_OPERATION",
		Message: "Maximum hyperdisk-balanced disks count should be less than or equal to [16], Requested : [17]",
	})
	if _, err := p.AttachDisk(t.Context(), d.ID, node.ID); !errors.Is(err, provider.ErrCapacity) {
		t.Error(err)
	}
	s.SetQuota("DISKS_TOTAL_GB", 5)
	if _, err := p.CreateDisk(t.Context(), "more", diskSpec("more")); !errors.Is(err, provider.ErrQuota) {
		t.Error(err)
	}
}

// TestDiskKeyOfVolumes: the configured key encrypts disks of volumes too.
func TestDiskKeyOfVolumes(t *testing.T) {
	s := newStand(t)
	s.cfg.DiskKey = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
	_, body, err := s.mustOpen(t).diskBody(t.Context(), "name", "key", diskSpec("key"))
	if err != nil || body.Key == nil || body.Key.Name != s.cfg.DiskKey {
		t.Errorf("%+v, %v", body, err)
	}
}

// volumes are the permissions that only volumes need.
var volumes = []string{
	"compute.disks.createSnapshot", "compute.disks.get", "compute.disks.resize", "compute.disks.use", "compute.disks.useReadOnly",
	"compute.instances.attachDisk", "compute.instances.detachDisk", "compute.snapshots.create", "compute.snapshots.delete",
	"compute.snapshots.get", "compute.snapshots.list", "compute.snapshots.setLabels", "compute.snapshots.useReadOnly",
}

// TestVolumesRole: the documented role of volumes is exactly what the calls have needed besides those of pods.
func TestVolumesRole(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node := create(t, p, spec("node"))
	if err := cloudsim.DiskLife(t.Context(), p, 10<<30, node.ID); err != nil {
		t.Fatal(err)
	}
	snapshot, err := p.CreateSnapshot(t.Context(), "s", mustDisk(t, p, "d").ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	for snapshot.Ready = false; !snapshot.Ready && err == nil; {
		snapshot, err = p.GetSnapshot(t.Context(), snapshot.ID)
	}
	if _, err := p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromSnapshot: snapshot.ID, Tags: cloudsim.OwnerTags("c")}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ListSnapshots(t.Context(), cloudsim.OwnerTags("s")); err != nil {
		t.Fatal(err)
	}
	used := slices.DeleteFunc(s.Used(), func(name string) bool { return slices.Contains(role(), name) })
	if diff := cmp.Diff(used, volumes); diff != "" {
		t.Errorf("-used +volumes\n%s", diff)
	}
	text := "title: Outrigger volumes\nstage: GA\nincludedPermissions:\n- " + strings.Join(volumes, "\n- ") + "\n"
	cloudsim.CheckDoc(t, page, "volumes-role", "```yaml\n"+text+"```")
	cloudsim.CheckFile(t, "../../deploy/overlays/gcp/volumes-role.yaml", text)
}
