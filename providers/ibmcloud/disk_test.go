// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
	"github.com/outrigger/outrigger/test/csisanity"
)

// second has disks of the second storage generation, as a StorageClass with the type sdp.
type second struct{ *Provider }

func (s second) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	spec.Type = secondGeneration
	return s.Provider.CreateDisk(ctx, key, spec)
}

func TestCSISanity(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node := create(t, p, spec(key))
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(second{p}), NodeID: node.ID, Zone: sim.Zones[0]})
}

// TestFailuresInTheLifeOfADisk: after each the same calls go on, and leave nothing.
func TestFailuresInTheLifeOfADisk(t *testing.T) {
	for _, action := range []string{
		"CreateVolume", "GetVolume", "ListVolumes", "UpdateVolume", "DeleteVolume", "GetVolumeProfile", "CreateInstanceVolumeAttachment", "GetInstanceVolumeAttachment",
		"DeleteInstanceVolumeAttachment", "CreateSnapshot", "GetSnapshot", "ListSnapshots", "DeleteSnapshot",
	} {
		for name, fault := range map[string]cloudsim.Fault{
			"lost": cloudsim.LostReply(action), "refused": cloudsim.Refused(action, 503, "service_unavailable").Repeated(6),
			"goes on": cloudsim.GoesOn(action, 10*time.Millisecond), "throttled": cloudsim.Refused(action, 429, "rate_limit_exceeded"),
			"busy": cloudsim.Refused(action, 409, "invalid_state"),
		} {
			for _, kind := range []string{firstGeneration, secondGeneration} {
				t.Run(action+" "+name+" "+kind, func(t *testing.T) {
					t.Parallel() // they wait for the cloud
					s := newStand(t)
					s.World.SetLag(1)
					p := s.mustOpen(t)
					node := create(t, p, spec(key))
					s.World.Script(fault)
					disks := cloudsim.Disks(p)
					if kind == secondGeneration {
						disks = second{p}
					}
					if err := cloudsim.DiskLife(t.Context(), disks, 10<<30, node.ID); err != nil && !provider.Retryable(err) {
						t.Errorf("an error that nobody tries again: %v", err)
					}
					if err := errors.Join(cloudsim.DiskLife(t.Context(), disks, 10<<30, node.ID), p.DeleteInstance(t.Context(), node.ID)); err != nil {
						t.Fatal(err)
					}
					s.wantNothing(t)
				})
			}
		}
	}
}

// TestTheFirstGeneration: what the cloud does only while an instance that runs has the volume is an error by name before.
func TestTheFirstGeneration(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	ctx := t.Context()
	node := create(t, p, spec(key))
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("d")})
	if err != nil || d.Type != firstGeneration || d.Bytes != 10<<30 || d.Zone != sim.Zones[0] {
		t.Fatalf("%+v, %v", d, err)
	}
	refused := func(when string) {
		t.Helper()
		_, grow := p.ResizeDisk(ctx, d.ID, 11<<30)
		_, snap := p.CreateSnapshot(ctx, "s", d.ID, cloudsim.OwnerTags("s"))
		_, copied := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
		for what, err := range map[string]error{"resize": grow, "snapshot": snap, "copy": copied} {
			if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "only while an instance that runs has it") {
				t.Errorf("%s %s: %v", what, when, err)
			}
		}
	}
	refused("unattached")
	if err := p.PowerOff(ctx, node.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(ctx, d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	refused("of a stopped instance")
	if err := p.PowerOn(ctx, node.ID); err != nil {
		t.Fatal(err)
	}
	if grown, err := p.ResizeDisk(ctx, d.ID, 11<<30); err != nil || grown.Bytes != 11<<30 || grown.InstanceID != node.ID {
		t.Errorf("%+v, %v", grown, err)
	}
	snap, err := p.CreateSnapshot(ctx, "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromSnapshot: snap.ID, Type: secondGeneration, Tags: cloudsim.OwnerTags("c")}); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("a copy in another generation: %v", err)
	}
	copied, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
	if err != nil || copied.Bytes != 11<<30 {
		t.Fatalf("%+v, %v", copied, err)
	}
	if err := errors.Join(p.DeleteDisk(ctx, copied.ID), p.DeleteSnapshot(ctx, snap.ID), p.DeleteInstance(ctx, node.ID)); err != nil {
		t.Error(err)
	}
	if err := p.DetachDisk(ctx, d.ID, node.ID); err != nil {
		t.Error(err)
	}
	if err := p.DeleteDisk(ctx, d.ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestACopyThatIsStillFilled: its snapshot cannot go before, and goes with the copy.
func TestACopyThatIsStillFilled(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	ctx := t.Context()
	node := create(t, p, spec(key))
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 10 << 30, Tags: cloudsim.OwnerTags("d")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.AttachDisk(ctx, d.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	s.HoldRestores()
	copied, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
	if err != nil {
		t.Fatal(err)
	}
	snapshots := func() (n int) {
		for _, r := range s.World.Own() {
			if r.Kind == sim.KindSnapshot {
				n++
			}
		}
		return n
	}
	if snapshots() != 1 {
		t.Errorf("%d snapshots while the copy is filled", snapshots())
	}
	if list, err := p.ListSnapshots(ctx, map[string]string{provider.TagKey: "c"}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if err := p.DeleteDisk(ctx, copied.ID); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.DeleteInstance(ctx, node.ID), p.DetachDisk(ctx, d.ID, node.ID), p.DeleteDisk(ctx, d.ID)); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestAFailedVolume is made again.
func TestAFailedVolume(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	s.World.Script(cloudsim.Fault{Action: sim.LateVolume, Code: "failed"})
	if _, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("d")}); err == nil || !strings.Contains(err.Error(), "failed") || !provider.Retryable(err) {
		t.Errorf("%v", err)
	}
	s.wantNothing(t)
	d, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("d")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
}

// TestTheKeyOfDisks: with a key of the account no disk has IBM's, and a snapshot that has IBM's is refused in the second
// generation, not copied with that.
func TestTheKeyOfDisks(t *testing.T) {
	s := newStand(t)
	ctx := t.Context()
	plain := second{s.mustOpen(t)}
	open, err := plain.CreateDisk(ctx, "o", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("o")})
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.DiskKey = "crn:v1:bluemix:public:kms:us-south:a/1:2:key:3"
	p := second{s.mustOpen(t)}
	d, err := p.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("d")})
	if err != nil || !s.Encrypted(d.ID) || s.Encrypted(open.ID) {
		t.Fatalf("%+v, %v", d, err)
	}
	copied, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
	if err != nil || !s.Encrypted(copied.ID) {
		t.Errorf("%+v, %v", copied, err)
	}
	snap, err := p.CreateSnapshot(ctx, "s", open.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateDisk(ctx, "e", provider.DiskSpec{FromSnapshot: snap.ID, Tags: cloudsim.OwnerTags("e")}); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "encryption") {
		t.Errorf("%v", err)
	}
}

// TestACloneOfAnotherDisk, which a call has left that died, is not taken for the copy of this one.
func TestACloneOfAnotherDisk(t *testing.T) {
	s := newStand(t)
	ctx := t.Context()
	p := second{s.mustOpen(t)}
	var ids []string
	for _, name := range []string{"a", "b"} {
		d, err := p.CreateDisk(ctx, name, provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags(name)})
		if err == nil {
			err = s.WriteDisk(d.ID, []byte(name))
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	s.World.Script(cloudsim.Refused("CreateVolume", http.StatusForbidden, "over_quota"))
	if _, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: ids[0], Tags: cloudsim.OwnerTags("c")}); !errors.Is(err, provider.ErrQuota) {
		t.Fatal(err)
	}
	copied, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: ids[1], Tags: cloudsim.OwnerTags("c")})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := s.ReadDisk(copied.ID, 1); err != nil || string(data) != "b" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestCopiesAtOnce: calls with one key, at one time, make one copy, though the first to end removes what the others copy by.
func TestCopiesAtOnce(t *testing.T) {
	s := newStand(t)
	ctx := t.Context()
	d, err := second{s.mustOpen(t)}.CreateDisk(ctx, "d", provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags("d")})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		p := second{s.mustOpen(t)}
		calls.Go(func() {
			copied, err := p.CreateDisk(ctx, "c", provider.DiskSpec{FromDisk: d.ID, Tags: cloudsim.OwnerTags("c")})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = copied.ID
		})
	}
	calls.Wait()
	if t.Failed() || len(slices.Compact(ids)) != 1 {
		t.Fatal(ids)
	}
	p := s.mustOpen(t)
	if err := errors.Join(p.DeleteDisk(ctx, ids[0]), p.DeleteDisk(ctx, d.ID)); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// TestDisksAreNoInstances: a disk has the key of no instance, whatever its tags, and no instance takes it along.
func TestDisksAreNoInstances(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	ctx := t.Context()
	const own = "d"
	d, err := p.CreateDisk(ctx, own, provider.DiskSpec{Bytes: 1, Tags: cloudsim.OwnerTags(own)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteInstance(ctx, byVolume+d.ID); err != nil {
		t.Error(err)
	}
	node := create(t, p, spec(key))
	a, err := p.AttachDisk(ctx, d.ID, node.ID)
	if err != nil || len(a.Serial) != 20 {
		t.Fatalf("%+v, %v", a, err)
	}
	if list, err := p.ListInstances(ctx, map[string]string{provider.TagKey: own}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if made, err := p.CreateInstance(ctx, "web", own, nil, spec(own)); err != nil || made.ID == node.ID {
		t.Errorf("%+v, %v", made, err)
	}
	s.SetAuto(d.ID)
	if _, err := p.AttachDisk(ctx, d.ID, node.ID); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "auto-delete") {
		t.Errorf("auto-delete: %v", err)
	}
}

// TestVolumesRole: the documented actions of volumes are exactly what the calls have needed besides those of pods.
func TestVolumesRole(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	node := create(t, p, spec(key))
	if err := cloudsim.DiskLife(t.Context(), p, 10<<30, node.ID); err != nil {
		t.Fatal(err)
	}
	_, getErr := p.GetSnapshot(t.Context(), "r006-none")
	_, listErr := p.ListSnapshots(t.Context(), map[string]string{provider.TagKey: "s"})
	if !errors.Is(getErr, provider.ErrNotFound) || listErr != nil {
		t.Errorf("%v, %v", getErr, listErr)
	}
	more := slices.DeleteFunc(s.Used(), func(name string) bool { return slices.Contains(role, name) })
	if diff := cmp.Diff(more, volumesRole); diff != "" {
		t.Errorf("-used +role\n%s", diff)
	}
	text := strings.Join(more, "\n") + "\n"
	cloudsim.CheckDoc(t, page, "volumes-role", "```\n"+text+"```")
	cloudsim.CheckFile(t, "../../deploy/overlays/ibmcloud/volumes-role-actions.txt", text)
}
