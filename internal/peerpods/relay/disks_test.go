// SPDX-License-Identifier: Apache-2.0

package relay

import (
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
	if !placeDisks(got, disks) {
		t.Error("nothing has changed")
	}
	want := container()
	want.OCI.Mounts[0].Source = "/run/outrigger/volumes/s1"
	want.Storages = []*agent.Storage{{Driver: "outrigger-disk", Source: "s1", Fstype: "ext4", Options: []string{"noatime"},
		MountPoint: "/run/outrigger/volumes/s1", FsGroup: &agent.FSGroup{GroupId: 1000}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if other := container(); placeDisks(other, disks[1:]) || len(other.Storages) > 0 {
		t.Errorf("a container without such a volume has %v", other.Storages)
	}
}
