// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

func TestDisksOfAContainer(t *testing.T) {
	const target = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pv/mount"
	container := func() *agent.CreateContainerRequest {
		return &agent.CreateContainerRequest{OCI: &agent.Spec{Mounts: []*agent.Mount{
			{Destination: "/data", Type: "bind", Source: target + "/", Options: []string{"rbind", "rw"}},
			{Destination: "/etc/hosts", Type: "bind", Source: "/run/kata-containers/shared/hosts"},
		}}}
	}
	disks := []directvolume.Attached{
		{Target: target, Serial: "s1", FsType: "ext4", Options: []string{"noatime"}, FSGroup: "1000"},
		{Target: "/elsewhere", Serial: "s2"},
	}
	got := container()
	if changed, err := placeDisks(got, disks); !changed || err != nil {
		t.Errorf("changed: %v, %v", changed, err)
	}
	want := container()
	want.OCI.Mounts[0].Source = "/run/outrigger/volumes/s1"
	want.Storages = []*agent.Storage{{Driver: "outrigger-disk", Source: "s1", Fstype: "ext4", Options: []string{"noatime"},
		MountPoint: "/run/outrigger/volumes/s1", FsGroup: &agent.FSGroup{GroupId: 1000}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	other := container()
	if changed, err := placeDisks(other, disks[1:]); changed || err != nil || len(other.Storages) > 0 {
		t.Errorf("a container without such a volume: %v, %v, %v", changed, err, other.Storages)
	}
	folder := container()
	folder.ContainerId, folder.OCI.Mounts[0].Source = "c", target+"/a/b"
	if changed, err := placeDisks(folder, disks); !changed || err != nil {
		t.Errorf("changed: %v, %v", changed, err)
	}
	want.ContainerId, want.OCI.Mounts[0].Source = "c", "/run/outrigger/parts/c/0"
	want.Storages = append(want.Storages, &agent.Storage{Driver: "outrigger-subpath", Source: "/run/outrigger/volumes/s1", Options: []string{"a/b"}, MountPoint: "/run/outrigger/parts/c/0"})
	if diff := cmp.Diff(want, folder, protocmp.Transform()); diff != "" {
		t.Errorf("a subPath (-want +got):\n%s", diff)
	}
	raw := container()
	raw.OCI.Mounts = nil
	raw.Storages = []*agent.Storage{{Driver: "outrigger-block-device", Source: "/elsewhere", MountPoint: "/dev/x", Options: []string{"r"}}}
	if changed, err := placeDisks(raw, disks); !changed || err != nil || len(raw.Storages) != 1 || raw.Storages[0].Source != "s2" {
		t.Errorf("a block device: %v, %v, %v", changed, err, raw.Storages)
	}
	if _, err := placeDisks(raw, disks); err == nil || !strings.Contains(err.Error(), "/dev/x is a volume whose disk the VM does not have") {
		t.Errorf("a block device of another pod: %v", err)
	}
	part := container()
	part.OCI.Mounts[0].Source = "/var/lib/kubelet/pods/u/volume-subpaths/pv/main/0"
	if _, err := placeDisks(part, disks); err == nil || !strings.Contains(err.Error(), "subPath") {
		t.Errorf("a part of the volume: %v", err)
	}
}
