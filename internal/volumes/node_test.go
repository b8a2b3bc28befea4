// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/outrigger/outrigger/internal/directvolume"
)

// machine is a node without a kernel of its own: its disks are files, which the real programs
// format, check and grow, and its mounts are a list.
type machine struct {
	t      testing.TB
	dir    string
	mounts *mount.FakeMounter
	*Driver
}

func newMachine(t testing.TB, w Workloads) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), mounts: mount.NewFakeMounter(nil)}
	d, err := New(Options{Node: m.options(), Workloads: w, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.Driver = d
	return m
}

func (m *machine) options() *NodeOptions {
	return &NodeOptions{
		ID: "i-1", Zone: "z1", MaxVolumes: 20, Records: m.path("records"), Sys: m.path("sys"), Dev: m.path("dev"),
		Mounts: mount.NewSafeFormatAndMount(m.mounts, exec.New()),
	}
}

func (m *machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

// plug gives the node an empty disk of 16 MiB.
func (m *machine) plug(name, serialFile, serial string) (device string) {
	m.t.Helper()
	device = m.path("dev", name)
	file := m.path("sys/block", name, serialFile)
	err := errors.Join(os.MkdirAll(m.path("dev"), 0o755), os.MkdirAll(filepath.Dir(file), 0o755),
		os.WriteFile(file, []byte(serial), 0o644), os.WriteFile(device, nil, 0o600), os.Truncate(device, 16<<20))
	if err != nil {
		m.t.Fatal(err)
	}
	return device
}

// call makes one request as kubelet does.
func call[Q, R any](m *Driver, ctx context.Context, name string, method func(context.Context, Q) (R, error), request Q) (R, error) {
	got, err := m.Intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/csi.v1/" + name}, func(ctx context.Context, r any) (any, error) {
		return method(ctx, r.(Q))
	})
	response, _ := got.(R)
	return response, err
}

func mountCapability(fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (m *machine) stage(c *csi.VolumeCapability) error {
	return m.stageWith(&csi.NodeStageVolumeRequest{VolumeCapability: c})
}

func (m *machine) stageWith(r *csi.NodeStageVolumeRequest) error {
	r.VolumeId, r.StagingTargetPath, r.PublishContext = "disk-1", m.path("staging"), map[string]string{keyPlacement: "node", keySerial: "S1"}
	_, err := call(m.Driver, m.t.Context(), "NodeStageVolume", m.node.NodeStageVolume, r)
	return err
}

func (m *machine) publish(target string, change ...func(*csi.NodePublishVolumeRequest)) error {
	r := &csi.NodePublishVolumeRequest{
		VolumeId: "disk-1", StagingTargetPath: m.path("staging"), TargetPath: m.path(target), VolumeCapability: mountCapability("ext4"),
		PublishContext: map[string]string{keyPlacement: "node", keySerial: "S1"},
		VolumeContext:  map[string]string{"csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.name": "web", "csi.storage.k8s.io/pod.uid": "u-1"},
	}
	for _, c := range change {
		c(r)
	}
	_, err := call(m.Driver, m.t.Context(), "NodePublishVolume", m.node.NodePublishVolume, r)
	return err
}

func (m *machine) unpublish(target string) error {
	_, err := call(m.Driver, m.t.Context(), "NodeUnpublishVolume", m.node.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: "disk-1", TargetPath: m.path(target)})
	return err
}

func wantCode(t testing.TB, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("%v; want %s with %q", err, code, text)
	}
}

// TestDiskOfTheNode: an empty disk is formatted, a second time it is not, and it is mounted where a
// pod wants it.
func TestDiskOfTheNode(t *testing.T) {
	m := newMachine(t, Nowhere{})
	device := m.plug("vda", "serial", "S1\n")
	for range 2 {
		if err := m.stage(mountCapability("ext4", "noatime")); err != nil {
			t.Fatal(err)
		}
	}
	readOnly := func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }
	for range 2 {
		if err := errors.Join(m.publish("a"), m.publish("b", readOnly)); err != nil {
			t.Fatal(err)
		}
	}
	want := []mount.MountPoint{
		{Device: device, Path: m.path("staging"), Type: "ext4", Opts: []string{"noatime"}},
		{Device: device, Path: m.path("a"), Opts: []string{"bind"}},
		{Device: device, Path: m.path("b"), Opts: []string{"bind", "ro"}},
	}
	if diff := cmp.Diff(want, m.mounts.MountPoints); diff != "" {
		t.Error(diff)
	}
	stats, err := call(m.Driver, t.Context(), "NodeGetVolumeStats", m.node.NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: "disk-1", VolumePath: m.path("a")})
	if err != nil || len(stats.GetUsage()) != 2 || stats.GetUsage()[0].GetTotal() == 0 || stats.GetVolumeCondition().GetAbnormal() {
		t.Errorf("%v, %v", stats, err)
	}
	_, unstage := call(m.Driver, t.Context(), "NodeUnstageVolume", m.node.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: m.path("staging")})
	if err := errors.Join(m.unpublish("a"), m.unpublish("a"), m.unpublish("b"), unstage); err != nil || len(m.mounts.MountPoints) > 0 {
		t.Errorf("%v, %v", m.mounts.MountPoints, err)
	}
	if _, err := os.Stat(m.path("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target: %v", err)
	}
}

// TestKilledBeforeReadOnly: a bind mount that is writable still is not what was asked for.
func TestKilledBeforeReadOnly(t *testing.T) {
	m := newMachine(t, Nowhere{})
	device := m.plug("vda", "serial", "S1")
	if err := errors.Join(m.stage(mountCapability("")), os.Mkdir(m.path("a"), 0o755), m.mounts.Mount(device, m.path("a"), "", []string{"bind"})); err != nil {
		t.Fatal(err)
	}
	if err := m.publish("a", func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }); err != nil {
		t.Fatal(err)
	}
	if last := m.mounts.MountPoints[len(m.mounts.MountPoints)-1]; len(m.mounts.MountPoints) != 2 || !slices.Contains(last.Opts, "ro") {
		t.Errorf("%+v", m.mounts.MountPoints)
	}
}

// TestNeverFormatted: only a disk that is proven empty is.
func TestNeverFormatted(t *testing.T) {
	for name, test := range map[string]struct {
		offset int64
		data   string
		want   string
	}{
		"data at the beginning": {512, "a database", "never formatted"},
		"data at the end":       {16<<20 - 10, "metadata", "never formatted"},
		"another file system":   {0, "XFSB\x00\x00\x10\x00", "never formatted"},
		"swap":                  {4086, "SWAPSPACE2", "never formatted"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, Nowhere{})
			device := m.plug("vda", "serial", "S1")
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte(test.data), test.offset)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(device)
			wantCode(t, m.stage(mountCapability("ext4")), codes.FailedPrecondition, test.want)
			if after, _ := os.ReadFile(device); string(before) != string(after) {
				t.Error("the disk was written to")
			}
			if len(m.mounts.MountPoints) > 0 {
				t.Errorf("mounted: %v", m.mounts.MountPoints)
			}
		})
	}
}

// TestDisksAreFoundBySerial: as virtio, NVMe and SCSI have it.
func TestDisksAreFoundBySerial(t *testing.T) {
	m := newMachine(t, Nowhere{})
	m.plug("vda", "serial", "V1\n")
	m.plug("nvme0n1", "device/serial", "N1                  \n")
	m.plug("sda", "device/vpd_pg80", "\x00\x80\x00\x04S1  ")
	m.plug("loop0", "none", "")
	for serial, name := range map[string]string{"V1": "vda", "N1": "nvme0n1", "S1": "sda"} {
		if got, err := m.node.device(serial); err != nil || got != m.path("dev", name) {
			t.Errorf("%s: %s, %v", serial, got, err)
		}
	}
	m.plug("vdb", "serial", "V1")
	_, err := m.node.device("V1")
	wantCode(t, wire(err), codes.FailedPrecondition, "all have the serial number")
	_, err = m.node.device("V2")
	wantCode(t, wire(err), codes.Unavailable, "no disk")
	if err := os.Remove(m.path("dev/sda")); err != nil {
		t.Fatal(err)
	}
	_, err = m.node.device("S1")
	wantCode(t, wire(err), codes.Unavailable, "S1") // its file comes a moment later
}

func TestBlockDevice(t *testing.T) {
	m := newMachine(t, Nowhere{})
	device := m.plug("vda", "serial", "S1")
	block := func(r *csi.NodePublishVolumeRequest) {
		r.VolumeCapability = mountCapability("")
		r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	r := &csi.NodePublishVolumeRequest{}
	block(r)
	for range 2 {
		if err := errors.Join(m.stage(r.VolumeCapability), m.publish("a", block)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]mount.MountPoint{{Device: device, Path: m.path("a"), Opts: []string{"bind"}}}, m.mounts.MountPoints); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(m.path("a")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the target is %v, %v", info, err)
	}
	if err := m.unpublish("a"); err != nil {
		t.Error(err)
	}
}

// inVM is what the API server says of one pod in a VM.
type inVM struct{ Nowhere }

func (inVM) Pod(context.Context, string, string, string) (*Pod, error) {
	group := int64(2000)
	return &Pod{Placement: InVM, FSGroup: &group, FSGroupChangePolicy: "OnRootMismatch"}, nil
}

func toVM(r *csi.NodePublishVolumeRequest) {
	r.PublishContext = map[string]string{keyPlacement: "vm"}
	r.VolumeCapability = mountCapability("", "noatime")
}

// TestVolumeOfAVM: the node has a record, and nothing is mounted.
func TestVolumeOfAVM(t *testing.T) {
	m := newMachine(t, inVM{})
	_, err := call(m.Driver, t.Context(), "NodeStageVolume", m.node.NodeStageVolume, &csi.NodeStageVolumeRequest{
		VolumeId: "disk-1", StagingTargetPath: m.path("staging"), VolumeCapability: mountCapability(""), PublishContext: map[string]string{keyPlacement: "vm"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.publish("a", toVM, func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }); err != nil {
			t.Fatal(err)
		}
	}
	want := &directvolume.Info{
		VolumeType: "block", Device: "disk-1", FsType: "ext4", Options: []string{"noatime", "ro"},
		Metadata: map[string]string{"fsGroup": "2000", "fsGroupChangePolicy": "OnRootMismatch", "csi.outrigger.dev/disk": "disk-1", "csi.outrigger.dev/pod-uid": "u-1", "csi.outrigger.dev/read-only": "true"},
	}
	if got, err := directvolume.Read(m.node.Records, m.path("a")); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if info, err := os.Stat(m.path("a")); err != nil || !info.IsDir() || len(m.mounts.MountPoints) > 0 {
		t.Errorf("target %v, %v, mounts %v", info, err, m.mounts.MountPoints)
	}
	_, err = call(m.Driver, t.Context(), "NodeGetVolumeStats", m.node.NodeGetVolumeStats, &csi.NodeGetVolumeStatsRequest{VolumeId: "disk-1", VolumePath: m.path("a")})
	wantCode(t, err, codes.FailedPrecondition, "in the pod's VM")
	_, err = call(m.Driver, t.Context(), "NodeExpandVolume", m.node.NodeExpandVolume, &csi.NodeExpandVolumeRequest{VolumeId: "disk-1", VolumePath: m.path("a")})
	if err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(m.path("a/of/subPaths"), 0o750); err != nil { // kubelet makes them
		t.Fatal(err)
	}
	for range 2 {
		if err := m.unpublish("a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(m.path("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target: %v", err)
	}
	if targets, err := directvolume.Targets(m.node.Records); err != nil || len(targets) > 0 {
		t.Errorf("%q, %v", targets, err)
	}
}

// TestPodOfTheOtherKind gets neither an empty folder nor the disk of a VM.
func TestPodOfTheOtherKind(t *testing.T) {
	m := newMachine(t, inVM{})
	m.plug("vda", "serial", "S1")
	if err := m.stage(mountCapability("")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, m.publish("a"), codes.FailedPrecondition, "runs in a VM")
	m = newMachine(t, Nowhere{})
	wantCode(t, m.publish("a", toVM), codes.FailedPrecondition, "does not run in one")
	if targets, _ := directvolume.Targets(m.node.Records); len(targets) > 0 {
		t.Errorf("a record: %q", targets)
	}
}

// TestOnePod: ReadWriteOncePod, for both kinds.
func TestOnePod(t *testing.T) {
	one := func(r *csi.NodePublishVolumeRequest) {
		r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	ordinary := newMachine(t, Nowhere{})
	ordinary.plug("vda", "serial", "S1")
	if err := errors.Join(ordinary.stage(mountCapability("")), ordinary.publish("a", one), ordinary.publish("a", one)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, ordinary.publish("b", one), codes.FailedPrecondition, "for one pod")
	vms := newMachine(t, inVM{})
	if err := errors.Join(vms.publish("a", toVM, one), vms.publish("a", toVM, one)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, vms.publish("b", toVM, one), codes.FailedPrecondition, "for one pod")
}

func TestBadRequestsToTheNode(t *testing.T) {
	m := newMachine(t, Nowhere{})
	many := mountCapability("")
	many.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	for name, test := range map[string]struct {
		change func(*csi.NodePublishVolumeRequest)
		code   codes.Code
		text   string
	}{
		"not staged":     {func(*csi.NodePublishVolumeRequest) {}, codes.FailedPrecondition, "not staged"},
		"no volume":      {func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, codes.InvalidArgument, "volume_id"},
		"no target":      {func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" }, codes.InvalidArgument, "target_path"},
		"no capability":  {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, codes.InvalidArgument, "volume_capability"},
		"many nodes":     {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = many }, codes.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"no placement":   {func(r *csi.NodePublishVolumeRequest) { r.PublishContext = nil }, codes.InvalidArgument, "placement"},
		"another fstype": {func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = mountCapability("ntfs") }, codes.InvalidArgument, `"ntfs": want one of ext4`},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, m.publish("a", test.change), test.code, test.text) })
	}
}

// TestEncryptedVolumeOfAVM: the record, which only root reads, has the key; an older guest does not know its file system. Without a
// Secret there is none.
func TestEncryptedVolumeOfAVM(t *testing.T) {
	m := newMachine(t, inVM{})
	locked := func(secrets map[string]string) func(*csi.NodePublishVolumeRequest) {
		return func(r *csi.NodePublishVolumeRequest) {
			toVM(r)
			r.VolumeContext[attributeEncrypted], r.Secrets = "true", secrets
		}
	}
	wantCode(t, m.publish("a", locked(nil)), codes.InvalidArgument, "nodePublishSecretRef")
	wantCode(t, m.publish("a", locked(map[string]string{"key": strings.Repeat("k", maxKey+1)})), codes.InvalidArgument, "4097 bytes")
	if targets, err := directvolume.Targets(m.node.Records); err != nil || len(targets) > 0 {
		t.Errorf("%q, %v", targets, err)
	}
	if err := m.publish("a", locked(map[string]string{"key": "secret"})); err != nil {
		t.Fatal(err)
	}
	got, err := directvolume.Read(m.node.Records, m.path("a"))
	if err != nil || got.FsType != directvolume.FsLUKS || got.Metadata[directvolume.MetadataKey] != "c2VjcmV0" {
		t.Errorf("%+v, %v", got, err)
	}
	files, err := filepath.Glob(filepath.Join(m.node.Records, "*/*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestSealedKey: the record has the seal as it came, which older guests do not take for a key, and a node that opens the disk itself
// writes nothing with it.
func TestSealedKey(t *testing.T) {
	const sealed = "sealed.header.payload.signature"
	vms := newMachine(t, inVM{})
	err := vms.publish("a", func(r *csi.NodePublishVolumeRequest) {
		toVM(r)
		r.VolumeContext[attributeEncrypted], r.Secrets = "true", map[string]string{"key": sealed + "\n"}
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := directvolume.Read(vms.node.Records, vms.path("a"))
	if err != nil || got.FsType != directvolume.FsLUKS || got.Metadata[directvolume.MetadataKey] != sealed {
		t.Errorf("%+v, %v", got, err)
	}
	for _, key := range []string{sealed, " " + sealed, "sealed.cut off"} {
		m := newMachine(t, Nowhere{})
		disk := m.plug("vdb", "serial", "S1")
		err := m.stageWith(&csi.NodeStageVolumeRequest{VolumeCapability: mountCapability("ext4"), VolumeContext: map[string]string{attributeEncrypted: "true"}, Secrets: map[string]string{"key": key}})
		wantCode(t, err, codes.InvalidArgument, `volume disk-1: the Secret's "key" is sealed`)
		if data, err := os.ReadFile(disk); err != nil || strings.Trim(string(data), "\x00") != "" {
			t.Errorf("%q: written to the disk, %v", key, err)
		}
	}
}
