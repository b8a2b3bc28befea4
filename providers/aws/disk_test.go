// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
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

// TestSnapshotOfADeadProcess: EC2 takes no token. A process that has just started looks until EC2 must have shown what the
// one before has made.
func TestSnapshotOfADeadProcess(t *testing.T) {
	t.Run("another", func(t *testing.T) {
		snapshotWithoutAReply(t, func(s *stand, _ *Provider) *Provider { return s.open(t) })
	})
	t.Run("the same", func(t *testing.T) {
		snapshotWithoutAReply(t, func(_ *stand, first *Provider) *Provider { return first })
	})
}

// snapshotWithoutAReply has the next process go on.
func snapshotWithoutAReply(t *testing.T, next func(*stand, *Provider) *Provider) {
	t.Helper()
	options := lively
	options.ListLag = true
	s := newStand(t, options)
	first := s.open(t)
	d := mustDisk(t, first, "d")
	first.began = time.Now().Add(-time.Hour)
	s.World.SetLag(12) // more looks than are made at least
	s.World.Script(cloudsim.LostReply("ec2:CreateSnapshot"))
	if made, err := first.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); !errors.Is(err, provider.ErrUnavailable) {
		t.Fatalf("%+v, %v", made, err)
	}
	if n := s.World.Calls()["ec2:CreateSnapshot"]; n != 1 {
		t.Errorf("%d calls", n)
	}
	p := next(s, first)
	p.timing.settle = time.Minute
	if _, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s")); err != nil {
		t.Fatal(err)
	}
	if n := s.World.Calls()["ec2:CreateSnapshot"]; n != 1 {
		t.Errorf("made %d snapshots", n)
	}
}

// TestSnapshotsOfTwoProcesses: each makes one as if it were alone, and the older stays.
func TestSnapshotsOfTwoProcesses(t *testing.T) {
	s := newStand(t, lively)
	p, other := s.open(t), s.open(t)
	d := mustDisk(t, p, "d")
	for _, p := range []*Provider{p, other} {
		p.began = time.Now().Add(-time.Hour)
	}
	hold := cloudsim.NewHold()
	s.World.Script(cloudsim.Held("ec2:CreateSnapshot", hold))
	done := make(chan *provider.Snapshot)
	go func() {
		made, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
		if err != nil {
			t.Error(err)
		}
		done <- made
	}()
	until(t, func() bool { return s.World.Calls()["ec2:CreateSnapshot"] == 1 })
	older, err := other.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	hold.Release()
	if younger := <-done; younger == nil || younger.ID != older.ID {
		t.Errorf("%+v and %+v", younger, older)
	}
	if list, err := p.ListSnapshots(t.Context(), map[string]string{provider.TagKey: "s"}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
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

const volumesPolicyFile = "../../deploy/overlays/aws/policy-volumes.json"

// volumeActions are those of the policy of volumes.
var volumeActions = sync.OnceValue(func() (list []string) {
	var policy struct{ Statement []statement }
	data, err := os.ReadFile(volumesPolicyFile)
	if err != nil || json.Unmarshal(data, &policy) != nil {
		return nil // TestVolumesPolicy -update writes it
	}
	for _, s := range policy.Statement {
		list = append(list, s.Action...)
	}
	return list
})

// TestVolumesPolicy: the policy of volumes is what a disk's life needs: volumes and snapshots of ours, and any instance, which may be a
// Node's.
func TestVolumesPolicy(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	node := create(t, p, "node")
	s.World.ResetCalls()
	if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID); err != nil {
		t.Fatal(err)
	}
	restored(t, p)
	look := statement{Sid: "Look", Effect: "Allow", Resource: []string{"*"}}
	makes := statement{Sid: "Create", Effect: "Allow", Resource: []string{"*"}}
	own := statement{
		Sid: "ChangeOnlyOwn", Effect: "Allow", Resource: []string{"arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*:*:snapshot/*"},
		Condition: map[string]map[string]string{"StringLike": {"aws:ResourceTag/" + tagVolume: "*"}},
	}
	instances := statement{Sid: "OfAnyInstance", Effect: "Allow", Resource: []string{"arn:aws:ec2:*:*:instance/*"}}
	for _, action := range slices.Sorted(maps.Keys(s.World.Calls())) {
		switch name := strings.TrimPrefix(action, "ec2:"); {
		case strings.HasPrefix(name, "Describe"):
			look.Action = append(look.Action, action)
		case strings.HasPrefix(name, "C"):
			makes.Action = append(makes.Action, action)
		default:
			own.Action = append(own.Action, action)
			if name == "AttachVolume" || name == "DetachVolume" {
				instances.Action = append(instances.Action, action)
			}
		}
	}
	tags := statement{
		Sid: "TagWhatIsCreated", Effect: "Allow", Resource: []string{"*"}, Action: s.Implied(),
		Condition: map[string]map[string]string{"StringLike": {"ec2:CreateAction": "*"}},
	}
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": []statement{look, makes, tags, own, instances}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	cloudsim.CheckDoc(t, page, "volumes-policy", "```json\n"+string(text)+"\n```\n")
	cloudsim.CheckFile(t, volumesPolicyFile, string(text)+"\n")
}

// TestEachPermissionOfVolumes: what lacks any one of them says which.
func TestEachPermissionOfVolumes(t *testing.T) {
	for _, action := range volumeActions() {
		s := newStand(t, lively)
		p := s.open(t)
		node := create(t, p, "node")
		s.Change(func(o *sim.Options) { o.Denied = map[string]bool{action: true} })
		err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID)
		if provider.Class(err) != provider.ErrPermissionDenied || !strings.Contains(err.Error(), action) {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// restored makes a disk of a snapshot, in the zone of the first subnet.
func restored(t *testing.T, p *Provider) {
	t.Helper()
	d := mustDisk(t, p, "of which")
	snap, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		got, err := p.GetSnapshot(t.Context(), snap.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Ready
	})
	copied, err := p.CreateDisk(t.Context(), "r", provider.DiskSpec{FromSnapshot: snap.ID, Tags: cloudsim.OwnerTags("r")})
	if err != nil || copied.Zone != sim.Region+"a" || copied.Bytes != d.Bytes {
		t.Fatalf("%+v, %v", copied, err)
	}
	if err := errors.Join(p.DeleteSnapshot(t.Context(), snap.ID), p.DeleteDisk(t.Context(), copied.ID), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Fatal(err)
	}
}
