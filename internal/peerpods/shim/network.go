// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// networkTypes are file systems of Linux that are not on the node, other than NFS and FUSE.
var networkTypes = []string{"9p", "afs", "beegfs", "ceph", "cifs", "coda", "gpfs", "lustre", "orangefs", "pvfs2", "smb3", "smbfs", "wekafs"}

func isNFS(m *mountinfo.Info) bool { return m.FSType == "nfs" || m.FSType == "nfs4" }

// isNetwork reports whether a file system is not on the node. Most of FUSE are not, and a copy of the others
// would not be what their programs serve; fuseblk is on a disk of the node.
func isNetwork(m *mountinfo.Info) bool {
	return isNFS(m) || slices.Contains(networkTypes, m.FSType) || m.FSType == "fuse" || strings.HasPrefix(m.FSType, "fuse.")
}

// network returns the mount of a network file system that a source is in, nil if it is in another file system.
// A source that has such a mount within it would be copied with it, and is refused.
func (c *Config) network(source string) (mount *mountinfo.Info, path string, err error) {
	path, err = filepath.EvalSymlinks(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil // others say what is missing
	}
	if err != nil {
		return nil, "", err
	}
	table, err := c.mountTable()
	if err != nil {
		return nil, "", err
	}
	for _, m := range table {
		if _, ok := within(path, m.Mountpoint); ok && (mount == nil || len(m.Mountpoint) >= len(mount.Mountpoint)) {
			mount = m
		}
	}
	for _, m := range table {
		if _, ok := within(m.Mountpoint, path); ok && m.Mountpoint != path && isNetwork(m) && !exports(mount, m) {
			return nil, "", fmt.Errorf("%s has the network file system %s (%s) mounted within it, at %s: a pod in a VM has no copies of those; mount that folder itself",
				source, m.Source, m.FSType, m.Mountpoint)
		}
	}
	if mount == nil || !isNetwork(mount) || mount.Mountpoint == "/" { // the files of a node without a disk are the node's
		return nil, "", nil
	}
	return mount, path, nil
}

// exports reports whether a mount was made by the kernel when something in another one of NFS was looked up: the
// guest's does the same.
func exports(above, m *mountinfo.Info) bool {
	_, ok := within(m.Source, above.Source)
	return ok && isNFS(above) && isNFS(m)
}

// mountTable is the node's: the shim is in containerd's mount namespace.
func (c *Config) mountTable() ([]*mountinfo.Info, error) {
	file, err := os.Open(c.mountInfo)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return mountinfo.GetMountsFromReader(file, nil)
}

// within returns where a path is in a folder.
func within(path, folder string) (string, bool) {
	rest, ok := strings.CutPrefix(path+"/", strings.TrimSuffix(folder, "/")+"/")
	return strings.Trim(rest, "/"), ok
}

// networkMount is what the guest mounts in place of a source in a network file system of the node. If the kubelet has
// mounted a subPath of a volume, the guest mounts the volume: the subPath may be a file, and a server may export no
// more than the volume. In the mount table (Linux' nfs_show_path and nfs_show_devname) the root of a mount of NFS
// is always /, and its source has the whole path on the server.
func (c *Config) networkMount(out podclient.Mount, volume string, m *mountinfo.Info, source string) (podclient.Mount, error) {
	export := m.Source
	for _, folder := range []string{"mount", "."} { // the former is of CSI
		if volume == "" {
			break
		}
		whole, _, err := c.network(filepath.Join(volume, folder))
		if err != nil {
			return out, err
		}
		if whole == nil {
			continue
		}
		if _, ok := within(m.Source, whole.Source); ok && whole.Major == m.Major && whole.Minor == m.Minor {
			export = whole.Source
		}
		break
	}
	var err error
	if out.Storage, err = nfsStorage(m, export); err != nil {
		return out, fmt.Errorf("%s is in the file system %s (%s) of the node, which is not copied, since what the pod writes would be lost: %w", out.Source, m.Source, m.FSType, err)
	}
	below, _ := within(m.Source, export)
	deeper, _ := within(source, m.Mountpoint)
	out.Type, out.SubPath = podclient.MountNetwork, path.Join(below, deeper)
	return out, nil
}

// Options of NFS in mount tables (Linux' nfs_show_mount_options) that the guest's kernel takes as they are, and those
// that say something of the node: clientaddr is its address, and it has a cache and labels of its own.
var (
	nfsOptions = strings.Fields(`ro sync nosuid nodev noexec noatime nodiratime relatime
		vers addr port proto sec hard soft softerr softreval timeo retrans rsize wsize bsize namlen nolock noacl nocto noac posix nordirplus nosharecache noresvport
		acregmin acregmax acdirmin acdirmax lookupcache nconnect max_connect trunkdiscovery migration write mountaddr mountvers mountport mountproto`)
	nodesOptions = strings.Fields("rw lazytime clientaddr fsc local_lock noalignwrite fatal_neterrors xprtsec seclabel context fscontext defcontext rootcontext")
)

// nfsStorage is a mount of the node's for the guest's agent, with the options of the node.
func nfsStorage(m *mountinfo.Info, export string) (*agent.Storage, error) {
	if !isNFS(m) {
		return nil, errors.New("a pod in a VM cannot have it: the node's mount table does not tell the password or key with which the VM could mount it, " +
			"or it is served by a program on the node. Use NFS, or a RuntimeClass without VMs")
	}
	options, value := []string{}, map[string]string{}
	for _, option := range splitOptions(m.Options + "," + m.VFSOptions) {
		name, v, _ := strings.Cut(option, "=")
		switch {
		case slices.Contains(options, option), option == "":
		case slices.Contains(nfsOptions, name):
			options = append(options, option)
		case !slices.Contains(nodesOptions, name):
			return nil, fmt.Errorf("the VM does not know the mount option %.100q: leave it out", option)
		}
		value[name] = v
	}
	if err := checkNFS(value); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(export + "\n" + strings.Join(options, ",")))
	return &agent.Storage{
		Driver: "nfs", Fstype: m.FSType, Source: export, Options: options, MountPoint: fmt.Sprintf("%s/%x", podclient.GuestNetwork, sum[:8]),
	}, nil
}

// splitOptions leaves commas in quotes alone: SELinux' contexts have them.
func splitOptions(text string) []string {
	quoted := false
	return strings.FieldsFunc(text, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ',' && !quoted
	})
}

// checkNFS refuses what needs programs that the guest has not, and what would work other than on the node.
func checkNFS(value map[string]string) error {
	_, nolock := value["nolock"]
	addr, _ := netip.ParseAddr(value["addr"])
	sec, vers, local := value["sec"], value["vers"], value["local_lock"]
	switch {
	case vers != "3" && !strings.HasPrefix(vers, "4"):
		return fmt.Errorf("the VM has NFS of version 3 and 4, and not %q: set nfsvers=4.2 in mountOptions", vers)
	case vers == "3" && !nolock && local != "all":
		return errors.New("locks of NFS version 3 need the program rpc.statd, which the VM has not: set nfsvers=4.2 in mountOptions, " +
			"or nolock, if no two pods lock the same file")
	case sec != "" && sec != "sys" && sec != "null":
		return fmt.Errorf("sec=%s needs the program rpc.gssd and the node's keys, which the VM has not: set sec=sys in mountOptions", sec)
	case value["proto"] != "tcp" && value["proto"] != "tcp6":
		return fmt.Errorf("the VM has NFS over TCP, and not proto=%s: set proto=tcp in mountOptions", value["proto"])
	case value["xprtsec"] != "" && value["xprtsec"] != "none":
		return fmt.Errorf("xprtsec=%s needs the program tlshd and the node's keys, which the VM has not: set xprtsec=none in mountOptions", value["xprtsec"])
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsLoopback(), addr.IsLinkLocalUnicast():
		return fmt.Errorf("its server has the address %q, where the pod's network has no such server: mount it without a proxy on the node", value["addr"])
	}
	return nil
}
