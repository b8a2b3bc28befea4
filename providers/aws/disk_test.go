// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
	"github.com/outrigger/outrigger/test/csisanity"
)

func TestCSISanity(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: create(t, p, "node").ID, Zone: sim.Region + "a"})
}

func mustDisk(t *testing.T, p *Provider, key string) *provider.Disk {
	t.Helper()
	d, err := p.CreateDisk(t.Context(), key, provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags(key)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"CreateVolume", "CopyVolumes", "DescribeVolumes", "DeleteVolume", "AttachVolume", "DetachVolume", "ModifyVolume", "DescribeVolumesModifications",
		"CreateSnapshot", "DescribeSnapshots", "DeleteSnapshot",
	} {
		action = "ec2:" + action
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "refused": cloudsim.Refused(action, 503, "Unavailable").Repeated(6),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "lost each time": cloudsim.LostReply(action).Repeated(5),
		} {
			t.Run(action+" "+name, func(t *testing.T) {
				s := newStand(t, lively)
				p := s.open(t)
				p.timing.settle, p.timing.token = 20*time.Millisecond, 50*time.Millisecond // EC2 shows all at once here
				node := create(t, p, "node")
				s.World.Script(fault)
				var err error
				for range 7 { // more often than a fault strikes, if the SDK does not repeat the call
					if err = cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID); err == nil {
						break
					} else if !provider.Retryable(err) {
						t.Errorf("an error that nobody tries again: %v", err)
					}
				}
				s.World.ClearFaults()
				if err := errors.Join(err, cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
					t.Fatal(err)
				}
				s.wantNothing(t)
			})
		}
	}
}

// TestDisksAreNoInstances: what instances have left is listed and deleted with them, and a disk is not, attached or not.
func TestDisksAreNoInstances(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t) // whose volumes count as left at once
	d := mustDisk(t, p, "d")
	for _, match := range []map[string]string{{provider.TagKey: "d"}, {provider.TagCluster: cloudsim.OwnerTags("d")[provider.TagCluster]}} {
		if list, err := p.ListInstances(t.Context(), match); err != nil || len(list) > 0 {
			t.Errorf("%v: %+v, %v", match, list, err)
		}
	}
	if err := p.DeleteInstance(t.Context(), d.ID); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("DeleteInstance of a disk: %v", err)
	}
	node := create(t, p, "node")
	if _, err := p.AttachDisk(t.Context(), d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteInstance(t.Context(), node.ID); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		got, err := p.GetDisk(t.Context(), d.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.InstanceID == ""
	})
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestQuotaAfterALostReply: EC2 looks at the quota before it looks at the token.
func TestQuotaAfterALostReply(t *testing.T) {
	options := lively
	options.Volumes, options.ListLag = 1, true
	s := newStand(t, options)
	p := s.open(t)
	s.World.Script(cloudsim.LostReply("ec2:CreateVolume"))
	if _, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags("d")}); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	mustDisk(t, p, "d")
	if _, err := p.CreateDisk(t.Context(), "e", provider.DiskSpec{Bytes: 1 << 30}); !errors.Is(err, provider.ErrQuota) {
		t.Errorf("%v", err)
	}
}

// TestTokenOfAnotherCall: EC2 does not show yet what a call with the key has made, and refuses other parameters with the same token.
func TestTokenOfAnotherCall(t *testing.T) {
	options := lively
	options.ListLag = true
	s := newStand(t, options)
	p := s.open(t)
	s.World.SetLag(6)
	s.World.Script(cloudsim.LostReply("ec2:CreateVolume").Repeated(5))
	spec := provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags("d")}
	if _, err := p.CreateDisk(t.Context(), "d", spec); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatal(err)
	}
	spec.Name = "other"
	if _, err := p.CreateDisk(t.Context(), "d", spec); err != nil {
		t.Error(err)
	}
	if own := s.World.Own(); len(own) != 1 {
		t.Errorf("%v", own)
	}
}

// TestDiskThatFails: EC2 has accepted to make it, and does not. The next call with the key makes another.
func TestDiskThatFails(t *testing.T) {
	options := lively
	options.FailVolumes = true
	s := newStand(t, options)
	p := s.open(t)
	p.timing.token = 50 * time.Millisecond
	spec := provider.DiskSpec{Bytes: 1 << 30, Tags: cloudsim.OwnerTags("d")}
	if _, err := p.CreateDisk(t.Context(), "d", spec); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "AWS_KMS_KEY_ID") {
		t.Errorf("%v", err)
	}
	s.Change(func(o *sim.Options) { o.FailVolumes = false })
	if err := p.DeleteDisk(t.Context(), mustDisk(t, p, "d").ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

func TestDiskTypesAndZones(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	source := mustDisk(t, p, "source")
	for name, c := range map[string]struct {
		spec     provider.DiskSpec
		want     string // type, zone, GiB
		mentions string
	}{
		"default":             {provider.DiskSpec{Bytes: 1}, "gp3 " + sim.Region + "a 1", ""},
		"zone":                {provider.DiskSpec{Bytes: 1, Zone: sim.Region + "b"}, "gp3 " + sim.Region + "b 1", ""},
		"least of a type":     {provider.DiskSpec{Bytes: 1, Type: "st1"}, "st1 " + sim.Region + "a 125", ""},
		"more than the limit": {provider.DiskSpec{Bytes: 1, Limit: 1 << 30, Type: "st1"}, "", "at least 125"},
		"too large for it":    {provider.DiskSpec{Bytes: 2000 << 30, Type: "standard"}, "", `type "standard"`},
		"IOPS":                {provider.DiskSpec{Bytes: 4 << 30, Type: "io2"}, "", "iops"},
		"zone of the source":  {provider.DiskSpec{FromDisk: source.ID, Type: "gp2"}, "gp2 " + sim.Region + "a 1", ""},
		"another zone":        {provider.DiskSpec{FromDisk: source.ID, Zone: sim.Region + "b"}, "", "snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Tags = cloudsim.OwnerTags(name)
			d, err := p.CreateDisk(t.Context(), name, c.spec)
			if c.mentions != "" {
				if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), c.mentions) {
					t.Errorf("%+v, %v; want ErrInvalidArgument that mentions %s", d, err, c.mentions)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s %s %d", d.Type, d.Zone, d.Bytes>>30); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestDevicesOfTwoProcesses: both choose the same name for another disk, and each disk gets one.
func TestDevicesOfTwoProcesses(t *testing.T) {
	options := lively
	options.TakenDevices = map[string]bool{"/dev/xvdaa": true} // the image's
	s := newStand(t, options)
	p, other := s.open(t), s.open(t)
	node := create(t, p, "node")
	var waiting sync.WaitGroup
	for i := range 6 {
		d := mustDisk(t, p, fmt.Sprint(i))
		waiting.Go(func() {
			a, err := []*Provider{p, other}[i%2].AttachDisk(t.Context(), d.ID, node.ID)
			if err != nil || a.Serial != strings.ReplaceAll(d.ID, "-", "") {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	waiting.Wait()
}

func TestFreeDevice(t *testing.T) {
	i, seen := &types.Instance{}, map[string]bool{}
	for range 4*26 + 25 {
		device := freeDevice(i, nil)
		if device == "" || seen[device] {
			t.Fatalf("%q after %d", device, len(seen))
		}
		seen[device] = true
		i.BlockDeviceMappings = append(i.BlockDeviceMappings, types.InstanceBlockDeviceMapping{DeviceName: &device})
	}
	if device := freeDevice(i, nil); device != "" || seen["/dev/sda"] {
		t.Errorf("%q after %d", device, len(seen))
	}
	i.BlockDeviceMappings = i.BlockDeviceMappings[:4*26]
	i.BlockDeviceMappings = append(i.BlockDeviceMappings, types.InstanceBlockDeviceMapping{DeviceName: sdk.String("/dev/xvdb")})
	if device := freeDevice(i, map[string]bool{"/dev/sdc": true}); device != "/dev/sdd" {
		t.Errorf("%q", device)
	}
}

// TestNoSerialNumber: guests that are not on Nitro could not find the disk.
func TestNoSerialNumber(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t, func(c *Config) { c.DisableCVM, c.InstanceType = true, "m4.large" })
	d, node := mustDisk(t, p, "d"), create(t, p, "node")
	if a, err := p.AttachDisk(t.Context(), d.ID, node.ID); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "m4.large") {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestResizeWhileOptimizing: EC2 takes no change for hours, and a disk that is as large as asked already needs none.
func TestResizeWhileOptimizing(t *testing.T) {
	options := lively
	options.Optimizing = true
	s := newStand(t, options)
	p := s.open(t)
	d := mustDisk(t, p, "d")
	for range 2 {
		if grown, err := p.ResizeDisk(t.Context(), d.ID, 2<<30); err != nil || grown.Bytes != 2<<30 {
			t.Errorf("%+v, %v", grown, err)
		}
	}
	if open, err := p.session(t.Context()); err != nil {
		t.Error(err)
	} else if state, err := open.modification(t.Context(), d.ID); err != nil || state != types.VolumeModificationStateOptimizing {
		t.Errorf("returned while the change is %s, %v", state, err)
	}
	if grown, err := p.ResizeDisk(t.Context(), d.ID, 3<<30); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "optimizes") {
		t.Errorf("%+v, %v", grown, err)
	}
	if n := s.World.Calls()["ec2:ModifyVolume"]; n != 1 {
		t.Errorf("%d changes", n)
	}
}

// TestResizeTooOften: EC2 takes four changes in 24 hours.
func TestResizeTooOften(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	d := mustDisk(t, p, "d")
	resize := func(gib int64) (err error) {
		until(t, func() bool { // the change before is complete
			_, err = p.ResizeDisk(t.Context(), d.ID, gib<<30)
			return err == nil || !strings.Contains(err.Error(), "optimizes")
		})
		return err
	}
	for gib := int64(2); gib <= 5; gib++ {
		if err := resize(gib); err != nil {
			t.Fatal(err)
		}
	}
	if err := resize(6); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "VolumeModificationRateExceeded") {
		t.Errorf("%v", err)
	}
}
