// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// TestVolumesThatOutliveTheirInstance are listed and deleted by that.
func TestVolumesThatOutliveTheirInstance(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	made := create(t, p, "k")
	create(t, p, "other")
	s.LoseVolumes(made.ID)
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	match := map[string]string{provider.TagKey: "k"}
	var stray string
	until(t, func() bool {
		list, err := p.ListInstances(t.Context(), match)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && strings.HasPrefix(list[0].ID, "vol-") {
			stray = list[0].ID
		}
		return stray != ""
	})
	young := s.open(t)
	young.timing.stray = time.Hour
	if list, err := young.ListInstances(t.Context(), match); err != nil || len(list) > 1 || len(list) == 1 && list[0].ID == stray {
		t.Errorf("a volume that may be about to be attached is listed: %v, %v", list, err)
	}
	for range 2 {
		if err := p.DeleteInstance(t.Context(), stray); err != nil {
			t.Error(err)
		}
	}
	if list, err := p.ListInstances(t.Context(), match); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, r := range s.World.Own() {
		if r.Kind == cloudsim.KindDisk && r.Key() == "k" && !r.Deleting {
			t.Errorf("left: %v", r)
		}
	}
}

// TestVolumesTakenFromALivingInstance are not listed: they may go back there.
func TestVolumesTakenFromALivingInstance(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	first := create(t, p, "k")
	s.LoseVolumes(first.ID)
	if err := p.DeleteInstance(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	match := map[string]string{provider.TagKey: "k"}
	strays := func() (n int) {
		list, err := p.ListInstances(t.Context(), match)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if strings.HasPrefix(i.ID, "vol-") {
				n++
			}
		}
		return n
	}
	until(t, func() bool { return strays() == 1 })
	create(t, p, "k")
	until(t, func() bool { return strays() == 0 })
}

// until asks until it is so.
func until(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not become so")
		}
	}
}

func TestQuotaOfVirtualCPUs(t *testing.T) {
	s := newStand(t, sim.Options{VCPUs: 4})
	p := s.open(t)
	create(t, p, "a")
	if err := p.ConfigVerifier(); err != nil {
		t.Errorf("with room for one: %v", err)
	}
	create(t, p, "b")
	err := p.ConfigVerifier()
	if !errors.Is(err, provider.ErrQuota) || !strings.Contains(err.Error(), "4 of the account's 4") || !strings.Contains(err.Error(), "PODVM_INSTANCE_TYPE") {
		t.Error(err)
	}
	// Networks without a way to Service Quotas are none that is wrong.
	s.World.Script(cloudsim.Unreachable("servicequotas:*").Repeated(-1))
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
	}
}

func TestVCPUQuotas(t *testing.T) {
	for name, want := range map[string]string{"m6a.large": "L-1216C47A", "g5.xlarge": "L-DB2E81BA", "vt1.3xlarge": "L-DB2E81BA", "mac2.metal": "", "u-6tb1.metal": "", "": ""} {
		if got := vcpuQuota(name, false); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := vcpuQuota("m6a.large", true); got != "L-34B43A08" {
		t.Errorf("spot: %q", got)
	}
}

// TestASuccessorWaitsForWhatItsPredecessorMade: the first zone was full, the
// instance is in the second, the process died before it knew, EC2 does not show
// the instance yet, and now the first zone has room.
func TestASuccessorWaitsForWhatItsPredecessorMade(t *testing.T) {
	zones := func(c *Config) { c.Subnets = []string{sim.SubnetA, sim.SubnetB} }
	s := newStand(t, sim.Options{ListLag: true, Full: map[string]bool{"* " + sim.Region + "a": true}})
	s.World.SetLag(4)
	first := s.open(t, zones)
	first.began = time.Now().Add(-time.Hour)
	s.World.Script(cloudsim.LostReply("ec2:RunInstances").Skipping(1).Repeated(5))
	if made, err := first.CreateInstance(t.Context(), "web", "k", userData, specOf("k")); err == nil {
		t.Fatalf("made %v", made)
	}
	s.World.ClearFaults()
	s.Change(func(o *sim.Options) { o.Full = nil })
	second := s.open(t, zones)
	second.timing.settle = time.Minute // more than the four looks take
	made := create(t, second, "k")
	if made.Zone != sim.Region+"b" {
		t.Errorf("made another in %s", made.Zone)
	}
	if wrong := s.World.Violations(); len(wrong) > 0 {
		t.Error(wrong)
	}
}
