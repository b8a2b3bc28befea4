// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/provider"
)

// scenarioVolumes: a pod's VM gets the disks of its own volumes and of nobody else's; the
// next pod gets a disk when the VM before is gone, and the disk stays when all have gone.
func scenarioVolumes(t *testing.T, w who) {
	records := filepath.Join(t.TempDir(), "direct-volumes")
	s := newStand(t, w, func(s *stand) { s.change = func(o *adaptor.Options) { o.DirectVolumes = records } })
	disk := func(key string) string {
		d, err := s.cloud.CreateDisk(t.Context(), key, provider.DiskSpec{Bytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	publish := func(uid, target, disk string) {
		if err := directvolume.Write(records, target, &directvolume.Info{VolumeType: directvolume.TypeBlock, Device: disk, FsType: "ext4", Options: []string{"noatime"},
			Metadata: map[string]string{directvolume.MetadataDisk: disk, directvolume.MetadataPodUID: uid, directvolume.MetadataFSGroup: "1000"}}); err != nil {
			t.Fatal(err)
		}
	}
	holder := func(disk string) string {
		d, err := s.cloud.GetDisk(t.Context(), disk)
		if err != nil {
			t.Fatal(err)
		}
		return d.InstanceID
	}
	first, other := disk("pvc-1"), disk("pvc-2")
	uid := s.pod("volumes")
	target := "/kubelet/pods/" + uid + "/a"
	publish(uid, target, first)
	publish("another-pod", "/kubelet/pods/another-pod/b", other)
	s.run("volumes1", "volumes")
	own := s.peerPod("volumes1", "volumes").Spec.InstanceID
	if got := holder(first); got == "" || got != own && own != "" || holder(other) != "" {
		t.Errorf("instance %s; its disk is at %q, another pod's at %q", own, got, holder(other))
	}
	attached, err := directvolume.ReadAttached(filepath.Join(s.dir, "pods", "volumes1"))
	want := []directvolume.Attached{{Target: target, FsType: "ext4", Options: []string{"noatime"}, FSGroup: "1000"}}
	if len(attached) == 1 {
		want[0].Serial = attached[0].Serial
	}
	if err != nil || !reflect.DeepEqual(attached, want) || want[0].Serial == "" {
		t.Errorf("attached %+v, %v; want %+v", attached, err, want)
	}

	next := s.pod("next")
	publish(next, "/kubelet/pods/"+next+"/c", first)
	if err := s.create("next1", "next"); err != nil {
		t.Fatal(err)
	}
	ready := make(chan error)
	go func() { ready <- s.start("next1") }()
	s.eventually("the next pod's VM is there", func() bool { pp := s.peerPod("next1", "next"); return pp != nil && pp.Spec.InstanceID != "" })
	select {
	case err := <-ready:
		t.Fatalf("the next pod is ready while another VM has its disk: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	s.remove("volumes1")
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	if got := s.peerPod("next1", "next").Spec.InstanceID; holder(first) != got {
		t.Errorf("the disk is at %q, and not at %q", holder(first), got)
	}
	s.remove("next1")
	if holder(first) != "" {
		t.Error("the disk is at an instance that is gone")
	}

	lost := s.pod("lost")
	publish(lost, "/kubelet/pods/"+lost+"/d", "no-such-disk")
	if err := errors.Join(s.create("lost1", "lost"), s.start("lost1")); err == nil || !strings.Contains(err.Error(), "look up disk no-such-disk") {
		t.Errorf("a disk that does not exist: %v", err)
	}
	s.remove("lost1")

	in := func(key, zone string) string {
		d, err := s.cloud.CreateDisk(t.Context(), key, provider.DiskSpec{Bytes: 1 << 30, Zone: zone})
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	far := s.pod("far")
	publish(far, "/kubelet/pods/"+far+"/e", in("pvc-e", "fake-zone-b"))
	s.run("far1", "far")
	if list, err := s.cloud.ListInstances(t.Context(), map[string]string{provider.TagPod: "far"}); err != nil || len(list) != 1 || list[0].Zone != "fake-zone-b" {
		t.Errorf("the VM of a disk in fake-zone-b: %+v, %v", list, err)
	}
	s.remove("far1")
	torn := s.pod("torn")
	publish(torn, "/kubelet/pods/"+torn+"/f", in("pvc-f", "fake-zone-b"))
	publish(torn, "/kubelet/pods/"+torn+"/g", in("pvc-g", "fake-zone"))
	if err := errors.Join(s.create("torn1", "torn"), s.start("torn1")); err == nil || !strings.Contains(err.Error(), "no VM can have both") {
		t.Errorf("disks of two zones: %v", err)
	}
	s.remove("torn1")
	s.wantNoInstances()
}
