// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
	"github.com/outrigger/outrigger/test/csisanity"
)

func inZone1(c *Config) { c.Zones = []string{"1"} }

func TestCSISanity(t *testing.T) {
	s := newStand(t, azuresim.Options{}, inZone1)
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(s.Provider), NodeID: s.mustCreate("node").ID, Zone: "1"})
}

func (s *stand) mustDisk(key string) *provider.Disk {
	s.t.Helper()
	d, err := s.CreateDisk(s.t.Context(), key, provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags(key)})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"disks/write", "disks/read", "disks/delete", "snapshots/write", "snapshots/read", "snapshots/delete", "virtualMachines/attachDetachDataDisks/action", "virtualMachines/read",
	} {
		action = compute + action
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "refused": cloudsim.Refused(action, 503, "ServiceUnavailable").Repeated(6),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "conflict": cloudsim.Refused(action, 409, "AnotherOperationInProgress"),
			"throttled": cloudsim.Refused(action, 429, "TooManyRequests").Repeated(6),
		} {
			t.Run(action+" "+name, func(t *testing.T) {
				s := newStand(t, azuresim.Options{})
				node := s.mustCreate("node")
				s.cloud.World.Script(fault)
				if err := cloudsim.DiskLife(t.Context(), s.Provider, 1<<30, node.ID); err != nil && !provider.Retryable(err) {
					t.Errorf("an error that nobody tries again: %v", err)
				}
				if err := cloudsim.DiskLife(t.Context(), s.Provider, 1<<30, node.ID); err != nil {
					t.Fatal(err)
				}
				s.mustDelete(node.ID)
				s.wantNothing()
			})
		}
	}
}

// TestDiskChangesThatFailLate: Azure has accepted to attach or to detach, and does not do it.
func TestDiskChangesThatFailLate(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	node, d := s.mustCreate("node"), s.mustDisk("d")
	s.cloud.World.Script(cloudsim.Refused("vm:disks", 0, "OperationPreempted"))
	first, err := s.AttachDisk(t.Context(), d.ID, node.ID) // was preempted by another change, and asks again
	if err != nil {
		t.Fatal(err)
	}
	s.cloud.World.Script(cloudsim.Refused("vm:disks", 0, "InternalExecutionError"))
	if err := s.DetachDisk(t.Context(), d.ID, node.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatalf("detach: %v", err)
	}
	// Azure refuses to attach what it failed to detach, until it is detached (AttachDiskWhileBeingDetached).
	again, err := s.AttachDisk(t.Context(), d.ID, node.ID)
	if err != nil || *again != *first {
		t.Errorf("attached as %+v, and then %+v, %v", first, again, err)
	}
	s.cloud.World.Script(cloudsim.Refused("disk:make", 0, "InternalExecutionError"))
	spec := provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags("late")}
	if _, err := s.CreateDisk(t.Context(), "late", spec); !provider.Retryable(err) {
		t.Errorf("create: %v", err)
	}
	if late, err := s.CreateDisk(t.Context(), "late", spec); err != nil {
		t.Error(err) // the next call with the key makes it
	} else if err := s.DeleteDisk(t.Context(), late.ID); err != nil {
		t.Error(err)
	}
}

// TestDisksOfTwoProcesses: attaching at the same time loses nothing, and the guest sees each at a unit of its own.
func TestDisksOfTwoProcesses(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	node, other := s.mustCreate("node"), s.reopen()
	disks := []*provider.Disk{s.mustDisk("a"), s.mustDisk("b"), s.mustDisk("c"), s.mustDisk("d")}
	serials := make(chan string, len(disks))
	for i, d := range disks {
		p := []*Provider{s.Provider, other}[i%2]
		go func() {
			a, err := p.AttachDisk(t.Context(), d.ID, node.ID)
			if err != nil {
				t.Error(err)
				serials <- ""
				return
			}
			serials <- a.Serial
		}()
	}
	var seen []string
	for range disks {
		seen = append(seen, <-serials)
	}
	slices.Sort(seen)
	if want := []string{"azure-lun-0", "azure-lun-1", "azure-lun-2", "azure-lun-3"}; !slices.Equal(seen, want) {
		t.Errorf("units %v, want %v", seen, want)
	}
	for _, d := range s.cloud.Model(node.ID).Properties.StorageProfile.DataDisks {
		if *d.DeleteOption != armcompute.DiskDeleteOptionTypesDetach || *d.Caching != armcompute.CachingTypesNone {
			t.Errorf("disk %s: deleted with the VM: %s, cached %s", *d.Name, *d.DeleteOption, *d.Caching)
		}
	}
	s.mustDelete(node.ID)
	for _, d := range disks { // each is let go, and there
		s.eventually(func() bool { return s.DeleteDisk(t.Context(), d.ID) == nil }, func() any { return d.ID })
	}
	s.wantNothing()
}

// TestDiskOfABusyVM: a VM that has been placed is attached to when Azure has finished making it.
func TestDiskOfABusyVM(t *testing.T) {
	s := newStand(t, azuresim.Options{Stuck: azuresim.Running})
	node, d := s.mustCreate("node"), s.mustDisk("d")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a, err := s.AttachDisk(ctx, d.ID, node.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestDiskTypesAndZones(t *testing.T) {
	s := newStand(t, azuresim.Options{}, inZone1)
	for name, c := range map[string]struct {
		spec     provider.DiskSpec
		zone     string
		mentions string
	}{
		"default":               {provider.DiskSpec{}, "1", ""},
		"zone":                  {provider.DiskSpec{Zone: "2"}, "2", ""},
		"case of the type":      {provider.DiskSpec{Type: "Premium_LRS"}, "1", ""},
		"all zones":             {provider.DiskSpec{Type: "Premium_ZRS"}, "", ""},
		"one zone of all":       {provider.DiskSpec{Type: "Premium_ZRS", Zone: "1"}, "", "Premium_ZRS"},
		"label of AKS":          {provider.DiskSpec{Zone: "eastus-2"}, "2", ""},
		"no zone of AKS":        {provider.DiskSpec{Zone: "0"}, "1", ""},
		"another region":        {provider.DiskSpec{Zone: "westus-1"}, "", "westus-1"},
		"a zone there is not":   {provider.DiskSpec{Zone: "9"}, "", `zone "9"`},
		"a size there is not":   {provider.DiskSpec{Bytes: 40000 << 30}, "", "40000 GiB"},
		"another type's source": {provider.DiskSpec{Type: "Standard_LRS", FromDisk: s.mustDisk("source").ID}, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Tags = cloudsim.OwnerTags("key")
			if c.spec.FromDisk == "" && c.spec.Bytes == 0 {
				c.spec.Bytes = 1 << 30
			}
			d, err := s.CreateDisk(t.Context(), "key", c.spec)
			if c.mentions != "" {
				if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), c.mentions) {
					t.Errorf("%+v, %v; want ErrInvalidArgument that names %s", d, err, c.mentions)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.Zone != c.zone || c.spec.Type != "" && d.Type != c.spec.Type {
				t.Errorf("%+v", d)
			}
			if err := s.DeleteDisk(t.Context(), d.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResizeThatNeedsAStop: beyond 4 TiB Azure makes larger only what no running VM has.
func TestResizeThatNeedsAStop(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	node, d := s.mustCreate("node"), s.mustDisk("d")
	if _, err := s.AttachDisk(t.Context(), d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ResizeDisk(t.Context(), d.ID, 5<<40); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "running VM") {
		t.Errorf("%v", err)
	}
	if err := s.DetachDisk(t.Context(), d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	if grown, err := s.ResizeDisk(t.Context(), d.ID, 5<<40); err != nil || grown.Bytes != 5<<40 {
		t.Errorf("%+v, %v", grown, err)
	}
}

// TestDiskKeysOfVolumes: disks have the configured set, and none of Azure's keys in its place.
func TestDiskKeysOfVolumes(t *testing.T) {
	const set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/d"
	p := &Provider{cfg: Config{DiskKeySet: set, DiskEncryption: "DiskWithVMGuestState"}}
	if err := p.encrypt(&volume{}); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("a set for the OS disks of confidential VMs: %v", err)
	}
	p.cfg.DisableCVM = true
	body := &volume{}
	if err := p.encrypt(body); err != nil || body.Properties.Encryption.Set != set {
		t.Errorf("%+v, %v", body.Properties.Encryption, err)
	}
}

// TestDiskIDs: Azure keeps no case, and ids of others are not ours.
func TestDiskIDs(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	d := s.mustDisk("d")
	found, err := s.GetDisk(t.Context(), strings.ToUpper(d.ID))
	if err != nil || found.ID != d.ID || found.Key != "d" {
		t.Errorf("%+v, %v", found, err)
	}
	if other, err := s.GetDisk(t.Context(), azuresim.VolumeID); err != nil || other.ID != azuresim.VolumeID || other.Key != "" {
		t.Errorf("somebody else's, in another group: %+v, %v", other, err)
	}
	far := strings.Replace(d.ID, azuresim.SubscriptionID, "11111111-2222-3333-4444-555555555555", 1)
	if err := s.DeleteDisk(t.Context(), far); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("of another subscription: %v", err)
	}
	if err := s.DeleteSnapshot(t.Context(), d.ID); err != nil {
		t.Errorf("no snapshot has the id of a disk: %v", err)
	}
	if _, err := s.GetDisk(t.Context(), d.ID); err != nil {
		t.Errorf("the disk was taken for a snapshot: %v", err)
	}
}
