// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"errors"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
	"github.com/outrigger/outrigger/test/csisanity"
)

func TestCSISanity(t *testing.T) {
	c := newCloud(t, sim.Options{})
	cfg := settings(c)
	cfg.DiskCategory = "cloud_auto" // csi-sanity wants disks of 1 GiB
	p := newProvider(t, cfg)
	node := mustCreate(t, p, "node", provider.InstanceTypeSpec{})
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(&using{p, c}), NodeID: node.ID, Zone: sim.Zone})
}

func diskSpec(key string) provider.DiskSpec {
	return provider.DiskSpec{Bytes: 20 << 30, Tags: cloudsim.OwnerTags(key)}
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"CreateDisk", "DescribeDisks", "DeleteDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "CreateSnapshot", "DescribeSnapshots", "DeleteSnapshot",
	} {
		action = "ecs:" + action
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "refused": cloudsim.Refused(action, 503, "ServiceUnavailable").Repeated(5),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "throttled": cloudsim.Refused(action, 400, "Throttling.User"),
		} {
			t.Run(action+" "+name, func(t *testing.T) {
				t.Parallel() // they wait until what was deleted is not shown any more
				c := newCloud(t, sim.Options{})
				p := newProvider(t, settings(c))
				node := mustCreate(t, p, "node", provider.InstanceTypeSpec{})
				c.Script(fault)
				if err := cloudsim.DiskLife(t.Context(), p, 20<<30, node.ID); err != nil && !provider.Retryable(err) {
					t.Errorf("an error that nobody tries again: %v", err)
				}
				if err := errors.Join(cloudsim.DiskLife(t.Context(), p, 20<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
					t.Fatal(err)
				}
				wantNothing(t, c)
			})
		}
	}
}

// TestCopiesOfANewDisk: of a disk that was never attached the cloud takes no snapshot. A copy of it is made without.
func TestCopiesOfANewDisk(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	d, err := p.CreateDisk(t.Context(), "d", diskSpec("d"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("snapshot: %v", err)
	}
	copied, err := p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
	if err != nil || copied.Bytes != d.Bytes || copied.FromDisk != d.ID || copied.FromSnapshot != "" {
		t.Fatalf("%+v, %v", copied, err)
	}
	if err := errors.Join(p.DeleteDisk(t.Context(), copied.ID), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// volumesPolicyFile is what the driver of volumes may do besides.
const volumesPolicyFile = overlay + "/ram-policy-volumes.json"

// TestVolumesPolicy writes the policy of volumes from the calls of a disk's life.
func TestVolumesPolicy(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	node := mustCreate(t, p, "node", provider.InstanceTypeSpec{})
	c.ResetCalls()
	if err := cloudsim.DiskLife(t.Context(), p, 20<<30, node.ID); err != nil {
		t.Fatal(err)
	}
	calls := c.Calls()
	delete(calls, "ecs:DescribeInstances")         // is in the policy of pods
	delete(calls, "vpc:DescribeVSwitchAttributes") //
	want := policyOf(t, slices.Sorted(maps.Keys(calls)))
	if got, err := os.ReadFile(volumesPolicyFile); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	} else if string(got) != want {
		if flag.Lookup("update").Value.String() != "true" {
			t.Errorf("%s is stale (go test with -update writes it); seen:\n%s", volumesPolicyFile, want)
		} else if err := os.WriteFile(volumesPolicyFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cloudsim.CheckDoc(t, page, "volumes-policy", "```json\n"+want+"```\n")
}

// TestDiskOfANode: a Node's own instance, which this provider did not make, gets disks of ordinary pods.
func TestDiskOfANode(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	node := c.AddForeign(nil)
	d, err := p.CreateDisk(t.Context(), "d", diskSpec("d"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, node); err != nil {
		t.Fatal(err)
	}
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.InstanceID != node {
		t.Errorf("%+v, %v; want it at %s", got, err, node)
	}
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, node), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
}
