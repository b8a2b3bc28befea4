// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// MountType says where a mount's content comes from.
type MountType string

// Mount types.
const (
	// MountBind is a file or folder of this host. It is copied into the guest
	// when the container is created; later changes on either side stay there.
	MountBind MountType = "bind"
	// MountTmpfs is memory of this container only.
	MountTmpfs MountType = "tmpfs"
	// MountVolume is an emptyDir on the guest's disk that containers of the
	// pod share by its name.
	MountVolume MountType = "volume"
	// MountEphemeral is an emptyDir in the guest's memory, shared by name.
	MountEphemeral MountType = "ephemeral"
	// MountNetwork is a network file system that the guest mounts.
	MountNetwork MountType = "network"
)

// Mount is one mount of a container.
type Mount struct {
	Type MountType
	// Source is a host path (bind) or a name (volume, ephemeral).
	Source string
	// Storage is what the guest's agent mounts (network); mounts of one mount point share it.
	Storage *agent.Storage
	// SubPath is a folder of a volume, ephemeral or network, or a file that there is in
	// it, that is mounted in place of all of it; relative and without "..".
	SubPath string
	// Destination is the absolute path in the container.
	Destination string
	ReadOnly    bool
	// SizeBytes limits a tmpfs or ephemeral mount; 0 means the kernel's default.
	SizeBytes int64
	// Data replaces a bind mount's host file; Source is then just its name.
	Data []byte
}

// placeMounts copies what must be copied and returns the OCI mounts and the
// storages for them.
func (p *Pod) placeMounts(ctx context.Context, spec ContainerSpec) ([]*agent.Mount, []*agent.Storage, error) {
	var mounts []*agent.Mount
	var storages []*agent.Storage
	for _, m := range p.withEtc(spec) {
		mount, needs, err := p.PlaceMount(ctx, spec.ID, m)
		if err != nil {
			return nil, nil, fmt.Errorf("mount %s: %w", m.Destination, err)
		}
		mounts, storages = append(mounts, mount), append(storages, needs...)
	}
	return mounts, storages, nil
}

// withEtc adds the files under /etc that a container runtime provides, unless
// the spec has its own.
func (p *Pod) withEtc(spec ContainerSpec) []Mount {
	if spec.pause {
		return []Mount{{Type: MountBind, Source: "resolv.conf", Destination: "/etc/resolv.conf", Data: p.resolvConf()}}
	}
	all := slices.Clone(spec.Mounts)
	for _, m := range []Mount{
		{Destination: "/etc/hostname", Data: []byte(p.spec.Hostname + "\n")},
		{Destination: "/etc/hosts", Data: p.hosts()},
		{Destination: "/etc/resolv.conf", Data: p.resolvConf()},
	} {
		if !slices.ContainsFunc(spec.Mounts, func(own Mount) bool { return path.Clean(own.Destination) == m.Destination }) {
			m.Type, m.Source = MountBind, path.Base(m.Destination)
			all = append(all, m)
		}
	}
	return all
}

func (p *Pod) resolvConf() []byte {
	return []byte(strings.TrimRight(strings.Join(p.spec.DNS, "\n"), "\n") + "\n")
}

func (p *Pod) hosts() []byte {
	lines := append([]string{
		"127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback",
		"fe00::0 ip6-localnet", "ff02::1 ip6-allnodes", "ff02::2 ip6-allrouters",
	}, p.spec.Hosts...)
	return []byte(strings.Join(lines, "\n") + "\n")
}

// PlaceMount brings a mount's content into the guest. CreateContainer has to carry
// the storages that the mount needs.
func (p *Pod) PlaceMount(ctx context.Context, containerID string, m Mount) (*agent.Mount, []*agent.Storage, error) {
	if m.SubPath != "" && (!filepath.IsLocal(m.SubPath) || m.Type != MountVolume && m.Type != MountEphemeral && m.Type != MountNetwork) {
		return nil, nil, fmt.Errorf("subPath %q: it has to be a path in a volume of the pod", m.SubPath)
	}
	switch m.Type {
	case MountBind:
		src := GuestPath(containerID, filepath.Base(m.Source))
		if m.Data != nil {
			return bindMount(m, "bind", src), nil, p.CopyData(ctx, src, 0o644, m.Data)
		}
		return bindMount(m, "bind", src), nil, p.CopyFile(ctx, m.Source, src)
	case MountTmpfs:
		options := append([]string{"nosuid", "nodev", "mode=1777", m.access()}, m.size()...)
		return &agent.Mount{Destination: m.Destination, Source: "tmpfs", Type: "tmpfs", Options: options}, nil, nil
	case MountVolume:
		at := path.Join(guestShared, p.spec.ID, "rootfs/local", path.Base(m.Source))
		return bindMount(m, "local", path.Join(at, m.SubPath)), m.withSubPath(localStorage(at)), nil
	case MountEphemeral:
		at := path.Join(guestEphemeral, path.Base(m.Source))
		return bindMount(m, "bind", path.Join(at, m.SubPath)), m.withSubPath(&agent.Storage{
			Driver: "ephemeral", Source: "tmpfs", Fstype: "tmpfs", Options: m.size(), MountPoint: at,
		}), nil
	case MountNetwork:
		if !slices.Contains(p.storageDrivers, m.Storage.Driver) {
			return nil, nil, fmt.Errorf("%s: the agent of this VM image mounts no network file systems (%s): use an image of this version of Outrigger", m.Storage.Source, m.Storage.Driver)
		}
		return bindMount(m, "bind", path.Join(m.Storage.MountPoint, m.SubPath)), []*agent.Storage{m.Storage}, nil
	}
	return nil, nil, fmt.Errorf("unknown mount type %q", m.Type)
}

// localStorage is a folder that everybody may use, as the kubelet makes emptyDirs.
func localStorage(at string) *agent.Storage {
	return &agent.Storage{Driver: "local", Source: "local", Fstype: "local", Options: []string{"mode=0777"}, MountPoint: at}
}

// withSubPath adds the folder within a volume that is mounted in place of the volume.
func (m Mount) withSubPath(volume *agent.Storage) []*agent.Storage {
	if m.SubPath == "" {
		return []*agent.Storage{volume}
	}
	return []*agent.Storage{volume, localStorage(path.Join(volume.MountPoint, m.SubPath))}
}

func (m Mount) access() string {
	if m.ReadOnly {
		return "ro"
	}
	return "rw"
}

func (m Mount) size() []string {
	if m.SizeBytes == 0 {
		return nil
	}
	return []string{"size=" + strconv.FormatInt(m.SizeBytes, 10)}
}

func bindMount(m Mount, typ, src string) *agent.Mount {
	return &agent.Mount{Destination: m.Destination, Source: src, Type: typ, Options: []string{"rbind", "rprivate", m.access()}}
}
