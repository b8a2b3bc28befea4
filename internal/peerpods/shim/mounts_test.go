// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

func TestVolumePlugin(t *testing.T) {
	for path, want := range map[string]string{
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~configmap/cm":     "kubernetes.io~configmap",
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/token/": "kubernetes.io~projected",
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount":  "kubernetes.io~csi",
		"/var/lib/kubelet/pods/u/volume-subpaths/cm/app/0":               "",
		"/var/lib/kubelet/pods/u/etc-hosts":                              "",
		"/var/lib/kubelet/pods/u/containers/app/1a2b3c4d":                "",
		"/srv/volumes/kubernetes.io~configmap/cm":                        "",
		"/": "",
		"/var/lib/kubelet/plugins/kubernetes.io/csi/pods/volumes/x/file/y": "",
	} {
		if got := volumePlugin(path); got != want {
			t.Errorf("%s: plugin %q, want %q", path, got, want)
		}
	}
}

func TestClassify(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, 2<<20); err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(small, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ofCSI := filepath.Join(t.TempDir(), "pods/u/volumes/kubernetes.io~csi/v") // as kubelet leaves it
	if err := errors.Join(os.MkdirAll(ofCSI, 0o755), os.WriteFile(filepath.Join(ofCSI, "vol_data.json"), []byte(`{"driverName":"ebs.csi.aws.com","volumeHandle":"vol-1"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	c.Outrigger.CopyLimitMiB = 1
	access := map[string][]string{big: {"ro"}, dir: {"rbind", "ro"}}
	for source, want := range map[string]string{
		big:                                     "copy_limit_mib",
		dir:                                     "copy_limit_mib",
		"/dev/null":                             "device of the node",
		small:                                   "readOnly: true",
		dir + "/none":                           "no such file",
		"/k/pods/u/volumes/kubernetes.io~nfs/v": "volume of plugin kubernetes.io~nfs",
		"/k/pods/u/volumes/kubernetes.io~csi/v/mount": `CSI driver "unknown"`,
		ofCSI + "/mount": `CSI driver "ebs.csi.aws.com" on the node: a pod in a VM cannot use it, since the VM shares no file system with the node: use a StorageClass of csi.outrigger.dev, or have outrigger-csi wrap the driver`,
	} {
		if _, _, err := c.classify(oci.Mount{Source: source, Options: access[source]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", source, err, want)
		}
	}
	for source, want := range map[string]sourceKind{
		"/k/pods/u/volumes/kubernetes.io~secret/s":    sourceWatched,
		"/k/pods/u/volumes/kubernetes.io~empty-dir/e": sourceEmptyDir,
		"/etc/hostname": sourceCopied,
	} {
		if _, got, err := c.classify(oci.Mount{Source: source, Options: []string{"rbind", "ro"}}); err != nil || got != want {
			t.Errorf("%s: %v, %v", source, got, err)
		}
	}
	for _, destination := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		if _, got, err := c.classify(oci.Mount{Source: small, Destination: destination}); err != nil || got != sourceCopied {
			t.Errorf("%s: %v, %v", destination, got, err)
		}
	}
}

// The name of a direct-assigned volume's folder is that of Kata's documentation.
func TestDirectVolume(t *testing.T) {
	folder, volume := t.TempDir(), "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount"
	described := filepath.Join(folder, "L3Zhci9saWIva3ViZWxldC9wb2RzL3Uvdm9sdW1lcy9rdWJlcm5ldGVzLmlvfmNzaS92L21vdW50")
	if disk, err := isDisk(folder, volume); disk || err != nil {
		t.Errorf("one that nobody has described: %v, %v", disk, err)
	}
	if err := errors.Join(os.Mkdir(described, 0o755), os.WriteFile(filepath.Join(described, "mountInfo.json"), []byte("{}"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := isDisk(folder, volume); err == nil || !strings.Contains(err.Error(), "not the driver csi.outrigger.dev") {
		t.Errorf("another driver's: %v", err)
	}
	if err := directvolume.Write(folder, volume, &directvolume.Info{Metadata: map[string]string{directvolume.MetadataDisk: "d1"}}); err != nil {
		t.Fatal(err)
	}
	if disk, err := isDisk(folder, volume); !disk || err != nil {
		t.Errorf("one of our driver: %v, %v", disk, err)
	}
	mount := filepath.Join(t.TempDir(), "mount")
	part := filepath.Join(mount, "a/b")
	err := errors.Join(os.MkdirAll(part, 0o755), directvolume.Write(folder, mount, &directvolume.Info{Metadata: map[string]string{directvolume.MetadataDisk: "d2"}}))
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "0") // stands for kubelet's bind mount
	if err := os.Symlink(part, link); err != nil {
		t.Fatal(err)
	}
	if got, err := partOfDisk(folder, mount, link); got != part || err != nil {
		t.Errorf("a part of it: %q, %v", got, err)
	}
	if got, err := partOfDisk(folder, mount, folder); err == nil || !strings.Contains(err.Error(), "not a part") {
		t.Errorf("a part of something else: %q, %v", got, err)
	}
	if got, err := partOfDisk(folder, filepath.Dir(mount), link); got != "" || err != nil {
		t.Errorf("a part of another volume: %q, %v", got, err)
	}
}

// TestSubPaths are mounts of parts of volumes, as the kubelet makes them.
func TestSubPaths(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pods/u")
	part := filepath.Join(pod, "volumes/kubernetes.io~empty-dir/data/a/b")
	for _, folder := range []string{part, filepath.Join(pod, "volumes/kubernetes.io~configmap/cm"), filepath.Join(pod, "volumes/kubernetes.io~nfs/share")} {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	// Links stand for bind mounts, which only root can make.
	bind := func(name, to string) string {
		path := filepath.Join(pod, "volume-subpaths", name, "app/0")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := defaultConfig()
	source, kind, err := c.classify(oci.Mount{Source: bind("data", part)})
	if err != nil || kind != sourceEmptyDir || source.SubPath != "a/b" || source.Source != filepath.Dir(filepath.Dir(part)) {
		t.Errorf("a part of an emptyDir: %+v, %v, %v", source, kind, err)
	}
	ro := []string{"ro"}
	if _, kind, err := c.classify(oci.Mount{Source: bind("cm", "/etc/hostname"), Options: ro}); err != nil || kind != sourceCopied {
		t.Errorf("a file of a ConfigMap: %v, %v", kind, err)
	}
	if _, _, err := c.classify(oci.Mount{Source: bind("share", t.TempDir()), Options: ro}); err == nil || !strings.Contains(err.Error(), "kubernetes.io~nfs") {
		t.Errorf("a part of a network file system: error %v", err)
	}
	if _, _, err := c.classify(oci.Mount{Source: bind("of-the-node", t.TempDir())}); err == nil || !strings.Contains(err.Error(), "readOnly: true") {
		t.Errorf("a part of a hostPath that may be written: error %v", err)
	}
}

// For the container of the recording the agent gets what the Kata shim sent.
func TestRequestIsKatas(t *testing.T) {
	data, err := os.ReadFile("../../../test/contract/testdata/createcontainer-example.json")
	if err != nil {
		t.Fatal(err)
	}
	want := &agent.CreateContainerRequest{}
	if err := protojson.Unmarshal(data, want); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	const sandbox = "3f3e5880399e98c91b725ae746f00c77491ba9cb26c2a15caefd51dab878055f"
	if err := r.create(&taskapi.CreateTaskRequest{ID: sandbox}, podSpecOf("sandbox", "sleep", "infinity")); err != nil {
		t.Fatal(err)
	}
	r.start(sandbox, "")
	if err := r.create(&taskapi.CreateTaskRequest{ID: want.ContainerId}, r.recordedSpec(want)); err != nil {
		t.Fatal(err)
	}
	got := r.node.Agent(sandbox).Created()[want.ContainerId]
	if diff := cmp.Diff(normal(t, want), normal(t, got), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// recordedSpec is what containerd made of the recorded container.
func (r *rig) recordedSpec(want *agent.CreateContainerRequest) *oci.Spec {
	r.t.Helper()
	volumes := r.dir + "/pods/u1/volumes/"
	sources := map[string]string{
		"/cfg": volumes + "kubernetes.io~configmap/cfg", "/ed": volumes + "kubernetes.io~empty-dir/ed",
		"/etc/hostname": r.dir + "/x/hostname", "/etc/hosts": r.dir + "/x/hosts", "/etc/resolv.conf": r.dir + "/x/resolv.conf", "/dev/shm": r.dir + "/x/shm",
	}
	for _, path := range sources {
		if err := os.MkdirAll(path, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	p, limit, quota, period, score := want.OCI.Process, int64(256<<20), int64(50000), uint64(100000), 985
	spec := &oci.Spec{
		Version: want.OCI.Version, Root: &oci.Root{Path: "rootfs"}, Annotations: map[string]string{}, Hostname: "ignored",
		Process: &oci.Process{
			Args: p.Args, Env: p.Env, Cwd: p.Cwd, User: oci.User{AdditionalGids: p.User.AdditionalGids}, OOMScoreAdj: &score,
			Capabilities: &oci.LinuxCapabilities{Bounding: p.Capabilities.Bounding, Effective: p.Capabilities.Effective, Permitted: p.Capabilities.Permitted},
		},
		Linux: &oci.Linux{
			CgroupsPath: want.OCI.Linux.CgroupsPath,
			Namespaces: []oci.LinuxNamespace{
				{Type: "pid"}, {Type: "ipc", Path: "/proc/1/ns/ipc"}, {Type: "uts", Path: "/proc/1/ns/uts"}, {Type: "mount"}, {Type: "network", Path: "/x"},
			},
			Resources: &oci.LinuxResources{
				Devices: []oci.LinuxDeviceCgroup{{Access: "rwm"}}, Pids: &oci.LinuxPids{Limit: new(int64)},
				Memory: &oci.LinuxMemory{Limit: &limit, Swap: &limit}, CPU: &oci.LinuxCPU{Quota: &quota, Period: &period, Cpus: "0-1"},
			},
		},
		Hooks: &oci.Hooks{CreateRuntime: []oci.Hook{{Path: "/bin/true"}}},
	}
	for key, value := range want.OCI.Annotations {
		if !strings.HasPrefix(key, "io.katacontainers.pkg.") {
			spec.Annotations[key] = value
		}
	}
	for _, m := range want.OCI.Mounts {
		mount := oci.Mount{Destination: m.Destination, Source: m.Source, Type: m.Type, Options: m.Options}
		if source := sources[m.Destination]; source != "" {
			mount.Source, mount.Type = source, "bind"
		}
		spec.Mounts = append(spec.Mounts, mount)
	}
	return spec
}

// The webhook takes limits out of pods; the guest applies them anyway.
func TestLimitsOfTheWebhook(t *testing.T) {
	r := newRig(t)
	sandbox := podSpecOf("sandbox", "sleep", "infinity")
	sandbox.Annotations["outrigger.dev/resources"] = `{"containers":{"app":{"requests":{"cpu":"250m"},"limits":{"cpu":"500m","memory":"64Mi"}}}}`
	if err := r.create(&taskapi.CreateTaskRequest{ID: "sb"}, sandbox); err != nil {
		t.Fatal(err)
	}
	r.start("sb", "")
	spec, shares := podSpecOf("container", "true"), uint64(2)
	spec.Annotations[keyContainerName] = "app"
	spec.Linux.Resources = &oci.LinuxResources{CPU: &oci.LinuxCPU{Shares: &shares}}
	if err := r.create(&taskapi.CreateTaskRequest{ID: "app"}, spec); err != nil {
		t.Fatal(err)
	}
	want := &agent.LinuxResources{
		Memory: &agent.LinuxMemory{Limit: 64 << 20, Swap: 64 << 20}, CPU: &agent.LinuxCPU{Shares: 256, Quota: 50000, Period: 100000},
	}
	got := r.node.Agent("sb").Created()["app"].OCI.Linux.Resources
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

var random = regexp.MustCompile(`-[0-9a-f]{16}-`)

// normal takes out what differs from run to run.
func normal(t *testing.T, req *agent.CreateContainerRequest) *agent.CreateContainerRequest {
	t.Helper()
	const key = "io.katacontainers.pkg.oci.bundle_path"
	req.OCI.Annotations[key] = "BUNDLE"
	for _, m := range req.OCI.Mounts {
		m.Source = random.ReplaceAllString(m.Source, "-X-")
	}
	pull := map[string]map[string]string{}
	option, _ := strings.CutPrefix(req.Storages[0].DriverOptions[0], "image_guest_pull=")
	if err := json.Unmarshal([]byte(option), &pull); err != nil {
		t.Fatal(err)
	}
	pull["metadata"][key] = "BUNDLE"
	data, err := json.Marshal(pull)
	if err != nil {
		t.Fatal(err)
	}
	req.Storages[0].DriverOptions[0] = string(data)
	return req
}

// TestPropagation: what would have no effect is refused by the name that the pod has for it.
func TestPropagation(t *testing.T) {
	for option, want := range map[string]string{"rprivate": "", "rslave": "mountPropagation HostToContainer", "rshared": "mountPropagation Bidirectional"} {
		err := checkPropagation(oci.Mount{Source: "/x", Options: []string{"rbind", option, "rw"}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", option, err, want)
		}
	}
}
