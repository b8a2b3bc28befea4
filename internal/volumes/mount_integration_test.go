// SPDX-License-Identifier: Apache-2.0

//go:build integration

package volumes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// newKernel is a machine with the kernel's mounts, whose disk is a loop device.
func newKernel(t *testing.T) (m *machine, file, device string) {
	t.Helper()
	m = newMachine(t, Nowhere{})
	m.node.Mounts, m.node.Dev = mount.NewSafeFormatAndMount(mount.New(""), utilexec.New()), "/dev"
	file = m.plug("disk", "none", "")
	if err := os.Truncate(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	device = strings.TrimSpace(tool(t, "losetup", "--find", "--show", file))
	t.Cleanup(func() { exec.Command("losetup", "--detach", device).Run() })
	t.Cleanup(func() { exec.Command("umount", m.path("a"), m.path("b"), m.path("staging")).Run() }) // of a test that failed
	sys := m.path("sys/block", filepath.Base(device))
	if err := errors.Join(os.MkdirAll(sys, 0o755), os.WriteFile(filepath.Join(sys, "serial"), []byte("S1\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return m, file, device
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func (m *machine) unstage() error {
	_, err := call(m.Driver, m.t.Context(), "NodeUnstageVolume", m.node.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: m.path("staging")})
	return err
}

func (m *machine) total(path string) int64 {
	m.t.Helper()
	r, err := call(m.Driver, m.t.Context(), "NodeGetVolumeStats", m.node.NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: "disk-1", VolumePath: path})
	if err != nil {
		m.t.Fatal(err)
	}
	return r.GetUsage()[0].GetTotal()
}

// TestKernelMounts: what a pod writes is there after its volume was away, is read-only where it is
// wanted so, and the file system grows while it is mounted.
func TestKernelMounts(t *testing.T) {
	m, file, device := newKernel(t)
	readOnly := func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }
	if err := errors.Join(m.stage(mountCapability("ext4", "noatime")), m.publish("a"), m.publish("b", readOnly), m.publish("b", readOnly)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path("a/data"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path("b/data"), nil, 0o600); err == nil {
		t.Error("a read-only volume is written to")
	}
	m.growWhileMounted(file, device)
	for range 2 {
		if err := errors.Join(m.unpublish("a"), m.unpublish("b"), m.unstage()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(m.stage(mountCapability("")), m.publish("a")); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(m.path("a/data")); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	if err := errors.Join(m.unpublish("a"), m.unstage()); err != nil {
		t.Error(err)
	}
}

func (m *machine) growWhileMounted(file, device string) {
	m.t.Helper()
	resize := func(size int64) {
		if err := errors.Join(os.Truncate(file, size), exec.Command("losetup", "--set-capacity", device).Run()); err != nil {
			m.t.Fatal(err)
		}
	}
	before := m.total(m.path("a"))
	resize(256 << 20)
	_, err := call(m.Driver, m.t.Context(), "NodeExpandVolume", m.node.NodeExpandVolume, &csi.NodeExpandVolumeRequest{VolumeId: "disk-1", VolumePath: m.path("a")})
	if err != nil && strings.Contains(err.Error(), "Permission denied to resize") {
		m.t.Log("this machine may not let file systems grow (CAP_SYS_RESOURCE)")
		resize(64 << 20)
		return
	}
	if after := m.total(m.path("a")); err != nil || after < 3*before {
		m.t.Errorf("%v: %d bytes, before %d", err, after, before)
	}
}

// TestKernelBlock: the target is the device itself.
func TestKernelBlock(t *testing.T) {
	m, _, _ := newKernel(t)
	block := mountCapability("")
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	asBlock := func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = block }
	for range 2 {
		if err := errors.Join(m.stage(block), m.publish("a", asBlock)); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(m.path("a")); err != nil || info.Mode()&os.ModeDevice == 0 || m.total(m.path("a")) != 64<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if err := errors.Join(m.unpublish("a"), m.unpublish("a"), m.unstage()); err != nil {
		t.Error(err)
	}
}

// TestKernelStandIn: kubelet has a block device for a volume whose disk a VM has, by which the volume is found, and
// which is gone with it; a driver that was killed in between leaves nothing.
func TestKernelStandIn(t *testing.T) {
	m := newMachine(t, inVM{})
	m.node.Mounts, m.node.Sys, m.node.Dev = mount.NewSafeFormatAndMount(mount.New(""), utilexec.New()), "/sys", "/dev"
	t.Cleanup(func() { // of a test that failed
		exec.Command("umount", m.path("a")).Run()
		blockdevice.RemoveStandIn("/sys", "/dev", m.path("a"))
		blockdevice.RemoveStandIn("/sys", "/dev", m.path("b"))
	})
	raw := func(r *csi.NodePublishVolumeRequest) {
		r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		r.PublishContext = map[string]string{keyPlacement: string(InVM)}
	}
	if left, err := blockdevice.StandIn("/sys", "/dev", m.path("a")); left == "" || err != nil { // of a killed driver
		t.Fatal(left, err)
	}
	other, err := blockdevice.StandIn("/sys", "/dev", m.path("b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.publish("a", raw), m.publish("a", raw)); err != nil {
		t.Fatal(err)
	}
	var is, not unix.Stat_t
	if err := errors.Join(unix.Stat(m.path("a"), &is), unix.Stat(other, &not)); err != nil {
		t.Fatal(err)
	}
	at := func(of unix.Stat_t) string {
		target, err := directvolume.RawAt(m.node.Records, unix.Major(of.Rdev), unix.Minor(of.Rdev))
		if err != nil {
			t.Error(err)
		}
		return target
	}
	if at(is) != m.path("a") || at(not) != "" {
		t.Errorf("volumes %q and %q", at(is), at(not))
	}
	// kubelet keeps the device open by a loop device of its own.
	if upper := strings.TrimSpace(tool(t, "losetup", "--find", "--show", m.path("a"))); upper != "" {
		tool(t, "losetup", "--detach", upper)
	}
	if err := errors.Join(m.unpublish("a"), m.unpublish("a")); err != nil {
		t.Error(err)
	}
	backing := fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(is.Rdev), unix.Minor(is.Rdev))
	if _, err := os.Stat(backing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stays: %v", backing, err)
	}
	if _, err := os.Lstat(m.path("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target stays: %v", err)
	}
}

// TestKernelDamaged: a damaged file system is said to be so, and stays as it is.
func TestKernelDamaged(t *testing.T) {
	m, file, _ := newKernel(t)
	tool(t, "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", file)
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 64<<10), 4096) // the descriptors of its block groups
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, m.stage(mountCapability("")), codes.Unavailable, "fsck")
	if left, err := m.node.mountAt(m.path("staging")); left != nil || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}
