// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// ociVersion is what containerd's specs of this shape say.
const ociVersion = "1.0.2-dev"

// cpuPeriod of a CPU limit in microseconds: the kernel's default.
const cpuPeriod = 100000

// createRequest returns the request as a shim sends it, see
// [agent.CreateContainerRequest]: namespaces without paths, no hooks, and cgroup
// limits only of memory and CPU.
func (p *Pod) createRequest(spec ContainerSpec, mounts []*agent.Mount, storages []*agent.Storage) *agent.CreateContainerRequest {
	ann := p.containerAnnotations(spec)
	rootfs := GuestRootfs(spec.ID)
	return &agent.CreateContainerRequest{
		ContainerId: spec.ID, ExecId: spec.ID,
		Storages: append([]*agent.Storage{PullStorage(spec.Image, rootfs, ann)}, storages...),
		OCI: &agent.Spec{
			Version: ociVersion, Process: spec.process(), Annotations: ann,
			Root:   &agent.Root{Path: rootfs, Readonly: spec.ReadOnly},
			Mounts: append(systemMounts(), mounts...),
			Linux: &agent.Linux{
				Resources:   limits(spec.MemoryBytes, spec.MilliCPU),
				CgroupsPath: path.Join("/kubepods", "pod"+p.spec.uid(), spec.ID),
				Namespaces:  []*agent.LinuxNamespace{{Type: "ipc"}, {Type: "uts"}, {Type: "mount"}},
				// What container runtimes hide by default because it reports, or steers, the
				// whole machine.
				MaskedPaths: []string{
					"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
					"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
				},
				ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			},
		},
	}
}

func (s PodSpec) uid() string { return cmp.Or(s.UID, s.ID[:min(len(s.ID), 32)]) }

// PullStorage makes the guest pull the image; the OCI annotations ride along.
func PullStorage(image, rootfs string, ann map[string]string) *agent.Storage {
	meta, _ := json.Marshal(map[string]any{"metadata": ann}) // strings always marshal
	return &agent.Storage{
		Driver: "image_guest_pull", Source: image, Fstype: "overlay", MountPoint: rootfs,
		DriverOptions: []string{"image_guest_pull=" + string(meta)},
	}
}

func (p *Pod) containerAnnotations(spec ContainerSpec) map[string]string {
	ann := map[string]string{
		annBundlePath:       "/run/outrigger/bundles/" + spec.ID,
		annKataType:         "pod_container",
		annCRIType:          "container",
		annContainerName:    spec.Name,
		annImageName:        spec.Image,
		annSandboxID:        p.spec.ID,
		annSandboxName:      p.spec.Name,
		annSandboxNamespace: p.spec.Namespace,
		annSandboxUID:       p.spec.uid(),
	}
	if spec.pause {
		ann[annKataType], ann[annCRIType] = "pod_sandbox", "sandbox"
		ann[annNetns] = p.spec.Netns
		delete(ann, annContainerName)
		delete(ann, annImageName)
	}
	maps.Copy(ann, p.spec.Annotations)
	return ann
}

func (s ContainerSpec) process() *agent.Process {
	return ExecSpec{
		Args: s.Args, Env: s.Env, Cwd: s.Cwd, User: s.User, TTY: s.TTY, Rows: s.Rows, Columns: s.Columns,
		Capabilities: s.Capabilities, NoNewPrivileges: s.NoNewPrivileges,
	}.process()
}

func limits(memoryBytes, milliCPU int64) *agent.LinuxResources {
	res := &agent.LinuxResources{}
	if memoryBytes > 0 {
		res.Memory = &agent.LinuxMemory{Limit: memoryBytes, Swap: memoryBytes}
	}
	if milliCPU > 0 {
		res.CPU = &agent.LinuxCPU{Quota: milliCPU * cpuPeriod / 1000, Period: cpuPeriod}
	}
	return res
}

// DefaultCapabilities returns those of containerd's CRI plugin.
func DefaultCapabilities() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
		"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	}
}

// capabilities takes nil for the default ones.
func capabilities(names []string) *agent.LinuxCapabilities {
	if names == nil {
		names = DefaultCapabilities()
	}
	return &agent.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}

func systemMounts() []*agent.Mount {
	mount := func(dst, typ, src string, options ...string) *agent.Mount {
		return &agent.Mount{Destination: dst, Type: typ, Source: src, Options: options}
	}
	return []*agent.Mount{
		mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
		mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
		mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
		mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"),
		mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro"),
		mount("/sys/fs/cgroup", "cgroup", "cgroup", "nosuid", "noexec", "nodev", "relatime", "ro"),
		mount("/dev/shm", "bind", GuestShm, "rbind"),
	}
}

// GuestRootfs returns the path of a container's root file system in the guest.
func GuestRootfs(containerID string) string {
	return path.Join(guestContainers, containerID, "rootfs")
}

// GuestPath returns a new path for a mount's source, named as the shim does.
func GuestPath(containerID, base string) string {
	return fmt.Sprintf("%s/%s-%s-%s", guestShared, containerID, NewID()[:16], base)
}
