// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// containerMounts holds the arguments of CreateContainer that come from a
// container's mounts.
type containerMounts struct {
	mounts      []*agent.Mount
	storages    []*agent.Storage
	volumes     []volume            // those that the kubelet changes
	termination *terminationMessage // nil if the container has no termination message
}

// placeMounts brings the content of the container's mounts into the guest.
func (c *Config) placeMounts(ctx context.Context, pod *podclient.Pod, b *bundle) (*containerMounts, error) {
	out := &containerMounts{}
	for _, m := range b.spec.Mounts {
		if err := c.placeMount(ctx, pod, b.id, m, out); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Destination, err)
		}
	}
	return out, nil
}

func (c *Config) placeMount(ctx context.Context, pod *podclient.Pod, id string, m oci.Mount, out *containerMounts) error {
	if !isBind(m) {
		out.mounts = append(out.mounts, guestMount(m, m.Type, m.Source))
		return nil
	}
	if err := checkPropagation(m); err != nil {
		return err
	}
	if m.Destination == "/dev/shm" {
		out.mounts = append(out.mounts, &agent.Mount{Destination: m.Destination, Type: "bind", Source: podclient.GuestShm, Options: []string{"rbind"}})
		return nil
	}
	source, kind, err := c.classify(m)
	if err != nil {
		return err
	}
	if kind == sourceDisk { // the relay knows what the guest calls it
		out.mounts = append(out.mounts, guestMount(m, m.Type, source.Source))
		return nil
	}
	vol := newVolume(m.Source)
	mount, storages, err := pod.PlaceMount(ctx, id, source)
	if err != nil {
		return err
	}
	out.mounts = append(out.mounts, guestMount(m, mount.Type, mount.Source))
	for _, storage := range storages {
		if kind != sourceNetwork { // its files belong to whom the server says
			storage.FsGroup = fsGroup(source.Source)
		}
	}
	out.storages = append(out.storages, storages...)
	switch {
	case kind == sourceWatched:
		vol.guest = mount.Source
		out.volumes = append(out.volumes, vol)
	case kind == sourceCopied && isTerminationMessage(m.Source):
		out.termination = &terminationMessage{host: m.Source, guest: mount.Source}
	}
	return nil
}

// propagations are the options of mounts that see others, by what a pod calls it (containerd's CRI plugin).
var propagations = map[string]string{"rslave": "HostToContainer", "rshared": "Bidirectional"}

// checkPropagation refuses what would have no effect: the node's mounts are not in the VM.
func checkPropagation(m oci.Mount) error {
	for _, option := range m.Options {
		if name := propagations[option]; name != "" {
			return fmt.Errorf("mountPropagation %s: a pod in a VM sees no mounts of its node, nor the node those of the pod; leave it out", name)
		}
	}
	return nil
}

func isBind(m oci.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// guestMount keeps the options that containerd chose.
func guestMount(m oci.Mount, kind, source string) *agent.Mount {
	return &agent.Mount{Destination: m.Destination, Type: kind, Source: source, Options: m.Options}
}

// sourceKind is what a bind mount's source is to a pod VM.
type sourceKind int

const (
	sourceCopied   sourceKind = iota // a file or folder, copied once
	sourceWatched                    // copied again whenever the kubelet changes it
	sourceEmptyDir                   // created on the guest's disk
	sourceMemory                     // created in the guest's memory
	sourceDisk                       // a disk of the VM
	sourceNetwork                    // mounted by the guest
)

const (
	emptyDir  = "kubernetes.io~empty-dir"
	csiPlugin = "kubernetes.io~csi"
)

// copiedPlugins are the kubelet's volume plugins whose volumes are small and
// read-only.
var copiedPlugins = []string{"kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api"}

// classify returns how a mount of the node gets into the pod VM, or an error if it
// cannot.
func (c *Config) classify(m oci.Mount) (podclient.Mount, sourceKind, error) {
	out := podclient.Mount{Type: podclient.MountBind, Source: m.Source, Destination: m.Destination}
	if disk, err := isDisk(directvolume.Root, m.Source); disk || err != nil {
		return out, sourceDisk, err
	}
	volume, err := volumeOfSubPath(m.Source)
	if err != nil {
		return out, 0, err
	}
	if volume != "" {
		part, err := partOfDisk(directvolume.Root, filepath.Join(volume, "mount"), m.Source)
		if part != "" || err != nil {
			out.Source = part
			return out, sourceDisk, err
		}
	}
	plugin := volumePlugin(cmp.Or(volume, m.Source))
	switch copied := slices.Contains(copiedPlugins, plugin); {
	case plugin == emptyDir:
		return emptyDirMount(out, volume)
	case copied && volume == "":
		return out, sourceWatched, nil
	case copied:
		return out, sourceCopied, c.checkCopyable(m)
	}
	mount, path, err := c.network(m.Source)
	if err != nil {
		return out, 0, err
	}
	if mount != nil {
		out, err = c.networkMount(out, volume, mount, path)
		return out, sourceNetwork, err
	}
	if plugin == csiPlugin {
		return out, 0, errOfCSI(cmp.Or(volume, m.Source))
	}
	if plugin != "" {
		return out, 0, fmt.Errorf("%s is a volume of plugin %s on the node: a pod in a VM cannot use it, since the VM shares no file system with the node", m.Source, plugin)
	}
	return out, sourceCopied, c.checkCopyable(m)
}

// errOfCSI names the driver of a volume that is mounted on the node, by what kubelet keeps beside the mount.
func errOfCSI(volume string) error {
	var kept struct {
		Driver string `json:"driverName"`
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSuffix(volume, "/mount"), "vol_data.json"))
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		kept.Driver = "unknown"
	}
	return fmt.Errorf("%s is a volume of the CSI driver %.100q on the node: a pod in a VM cannot use it, since the VM shares no file system with the node: "+
		"use a StorageClass of %s, or have outrigger-csi wrap the driver, if that is one of docs/volumes.md", volume, kept.Driver, directvolume.Driver)
}

// emptyDirMount is an emptyDir in the guest, or, if volume is not empty, the folder in
// it that the kubelet's bind mount of a subPath shows.
func emptyDirMount(m podclient.Mount, volume string) (podclient.Mount, sourceKind, error) {
	if volume != "" {
		within, err := pathWithin(volume, m.Source)
		if err != nil {
			return m, 0, err
		}
		m.Source, m.SubPath = volume, within
	}
	if inMemory(m.Source) {
		m.Type, m.SizeBytes = podclient.MountEphemeral, tmpfsSize(m.Source)
		return m, sourceMemory, nil
	}
	m.Type = podclient.MountVolume
	return m, sourceEmptyDir, nil
}

// volumePlugin returns the plugin of a kubelet's volume,
// <root>/pods/<uid>/volumes/<plugin>/<name>; empty for other paths.
func volumePlugin(source string) string {
	parts := strings.Split(filepath.Clean(source), "/")
	for _, deeper := range []int{0, 1} { // CSI volumes have their mount point one folder deeper
		if n := len(parts) - deeper; n >= 5 && parts[n-3] == "volumes" && parts[n-5] == "pods" {
			return parts[n-2]
		}
	}
	return ""
}

// volumeOfSubPath returns the folder of the volume of which the kubelet has mounted a
// part at source, <root>/pods/<uid>/volume-subpaths/<name>/<container>/<index>; empty
// for other paths, and for hostPaths, which have no folder.
func volumeOfSubPath(source string) (string, error) {
	parts := strings.Split(filepath.Clean(source), "/")
	n := len(parts)
	if n < 7 || parts[n-4] != "volume-subpaths" || parts[n-6] != "pods" {
		return "", nil
	}
	volumes := filepath.Join("/", filepath.Join(parts[:n-4]...), "volumes")
	plugins, err := os.ReadDir(volumes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, plugin := range plugins {
		path := filepath.Join(volumes, plugin.Name(), parts[n-3])
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", nil
}

// pathWithin returns where source, a bind mount of a folder in volume, is in it. On the
// node an emptyDir, or a volume whose disk the VM has, holds only the folders that the kubelet made for its subPaths.
func pathWithin(volume, source string) (within string, err error) {
	wanted, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(volume, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && os.SameFile(info, wanted) {
			within, err = filepath.Rel(volume, path)
			return cmp.Or(err, fs.SkipAll)
		}
		return err
	})
	if err == nil && within == "" {
		err = fmt.Errorf("%s is not a part of the volume %s", source, volume)
	}
	return within, err
}

// isDisk reports whether a volume's disk is one that our CSI driver leaves to the guest.
func isDisk(records, source string) (bool, error) {
	info, err := directvolume.Read(records, filepath.Clean(source))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENAMETOOLONG):
		return false, nil
	case err == nil && info.Disk() == "":
		return false, fmt.Errorf("%s is a volume that a CSI driver leaves to the guest, and not the driver %s: nothing attaches its disk to the pod's VM", source, directvolume.Driver)
	}
	return true, err
}

// partOfDisk returns the path in the volume that source, a bind mount of a part of it, is; empty if the volume
// is not one whose disk the VM has.
func partOfDisk(records, volume, source string) (string, error) {
	if disk, err := isDisk(records, volume); !disk || err != nil {
		return "", err
	}
	within, err := pathWithin(volume, source)
	if err != nil {
		return "", err
	}
	return filepath.Join(volume, within), nil
}

// checkCopyable returns an error for sources that are useless as a copy: devices and
// sockets, what is too large, and hostPaths that the container may write, since what it
// writes would not be on the node.
func (c *Config) checkCopyable(m oci.Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeDevice != 0:
		return fmt.Errorf("%s is a device of the node, which a pod in a VM cannot use", m.Source)
	case mode&fs.ModeSocket != 0:
		return fmt.Errorf("%s is a socket of the node, which a pod in a VM cannot reach", m.Source)
	case !mode.IsRegular() && !mode.IsDir():
		return fmt.Errorf("%s is neither a file nor a folder (%v): a pod in a VM cannot use it", m.Source, mode.Type())
	case !slices.Contains(m.Options, "ro") && !ofRuntime(m):
		return fmt.Errorf("%s is a hostPath, or a volume on one, that the container may write: a pod in a VM has a copy, and what it writes would not be on the node; "+
			"mount it with readOnly: true, or use an emptyDir", m.Source)
	}
	return c.checkSize(m.Source)
}

// ofRuntime reports whether a mount is one of those that kubelet and containerd give
// every container. Those of the kubelet are in the pod's folder, <root>/pods/<uid>.
func ofRuntime(m oci.Mount) bool {
	switch m.Destination {
	case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf":
		return true
	}
	return isTerminationMessage(m.Source)
}

// checkSize limits a source to copy_limit_mib: a hostPath such as / would fill the
// guest's memory.
func (c *Config) checkSize(source string) error {
	limit := c.Outrigger.CopyLimitMiB << 20
	var sum int64
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		if sum > limit {
			return fmt.Errorf("%s holds more than %d MiB: mounts of the node are copied into the pod's VM; "+
				"use an emptyDir, or raise copy_limit_mib in the shim's configuration", source, c.Outrigger.CopyLimitMiB)
		}
		return nil
	})
}

// inMemory reports whether an emptyDir has medium Memory: then it is a tmpfs.
func inMemory(path string) bool {
	var here, above unix.Stat_t
	if unix.Stat(path, &here) != nil || unix.Stat(filepath.Dir(path), &above) != nil || here.Dev == above.Dev {
		return false
	}
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// tmpfsSize returns the size in bytes; 0 if path is not a tmpfs or has no limit.
func tmpfsSize(path string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(st.Blocks) * st.Bsize
}

// fsGroup returns the pod's fsGroup, which the kubelet has made the group of the
// folder; nil if it has none.
func fsGroup(source string) *agent.FSGroup {
	var st unix.Stat_t
	if unix.Stat(source, &st) != nil || st.Gid == 0 {
		return nil
	}
	return &agent.FSGroup{GroupId: st.Gid}
}

// terminationMessage is the file of a container's termination message: the kubelet
// makes it, the container writes it, and the kubelet reads it when the container has
// ended. host is the kubelet's file, guest the copy that the container writes.
type terminationMessage struct{ host, guest string }

// isTerminationMessage reports whether a path is one of the kubelet's files for
// termination messages,
// <root>/pods/<uid>/containers/<name>/<hash>.
func isTerminationMessage(source string) bool {
	parts := strings.Split(filepath.Clean(source), "/")
	n := len(parts)
	if n < 5 || parts[n-3] != "containers" || parts[n-5] != "pods" {
		return false
	}
	info, err := os.Lstat(source)
	return err == nil && info.Mode().IsRegular()
}

// fetchTerminationMessage copies the message to the node before the node learns of
// the exit.
func (s *Service) fetchTerminationMessage(ctx context.Context, c *container) {
	if c.termination == nil {
		return
	}
	data, known, err := c.vm.pod.ReadCopied(ctx, c.termination.guest)
	if err == nil && known {
		err = c.termination.write(data)
	}
	switch {
	case err != nil && c.vm.pod.Err() == nil:
		s.log.Warn("the container's termination message stays in the VM", "container", c.id, "error", err)
	case !known && err == nil:
		s.log.Debug("the guest's agent cannot return termination messages", "container", c.id)
	}
}

// write replaces the content of the kubelet's file, but not the file itself.
func (w *terminationMessage) write(data []byte) error {
	file, err := os.OpenFile(w.host, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}
