// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/internal/guest/subpath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Storage drivers of the protocol that this agent knows.
const (
	driverImage     = "image_guest_pull"
	driverLocal     = "local"
	driverEphemeral = "ephemeral"
	driverBind      = "bind"
)

var storageHandlers = []string{driverImage, driverLocal, driverEphemeral, driverBind, driverNFS}

// addStorage makes one storage that is not an image. Storages belong to the
// sandbox: containers that name the same one share it, and it outlives them,
// so that a restarted container finds its emptyDir again.
func (a *Agent) addStorage(sb *sandbox, s *agent.Storage) error {
	target := a.local(s.GetMountPoint())
	if !filepath.IsAbs(target) {
		return status.Errorf(codes.InvalidArgument, "storage %s: mount point %q is not absolute", s.GetDriver(), target)
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.mounts[target] {
		return nil
	}
	if s.GetDriver() != driverNFS { // which has a folder of its own, and takes its time
		a.copies.mu.Lock() // no link is put into the path meanwhile
		defer a.copies.mu.Unlock()
	}
	if err := a.checkMountPoint(target); err != nil {
		return err
	}
	s, err := withFSGroup(s)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "storage %s at %s: %v", s.GetDriver(), s.GetMountPoint(), err)
	}
	volume, within := volumeOf(target)
	switch s.GetDriver() {
	case driverLocal:
		if within != "" {
			err = subpath.Make(volume, within)
		} else {
			err = makeLocal(target, s)
		}
	case driverEphemeral:
		err = mountEphemeral(target, s)
	case driverBind:
		err = mountBind(a.local(s.GetSource()), target, s)
	case driverNFS:
		err = a.mountNFS(target, s)
	default:
		return status.Errorf(codes.Unimplemented, "storage driver %q at %s: this agent has only %s",
			s.GetDriver(), s.GetMountPoint(), strings.Join(storageHandlers, ", "))
	}
	if err == nil && s.GetDriver() != driverLocal {
		sb.mounts[target] = true
	}
	if err == nil && within == "" {
		err = applyFSGroup(target, s.GetFsGroup())
	}
	if err != nil {
		return fmt.Errorf("storage %s at %s: %w", s.GetDriver(), s.GetMountPoint(), err)
	}
	return nil
}

// checkMountPoint returns an error for a path that leads to the folders in which the agent has images, its state and what it was
// provisioned with, or around them: whoever mounts there, or makes a folder, replaces an image that a policy has admitted. CopyFile can have
// put links into the path.
func (a *Agent) checkMountPoint(target string) error {
	real, rest := filepath.Clean(target), ""
	for {
		resolved, err := filepath.EvalSymlinks(real)
		if err == nil {
			real = filepath.Join(resolved, rest)
			break
		}
		if _, there := os.Lstat(real); there == nil || !errors.Is(err, fs.ErrNotExist) {
			return status.Errorf(codes.InvalidArgument, "mount point %s: a link in it leads nowhere", target)
		}
		real, rest = filepath.Dir(real), filepath.Join(filepath.Base(real), rest)
	}
	for _, own := range []string{a.cfg.Images.Dir, a.cfg.StateDir, a.cfg.Provisioned} {
		if resolved, err := filepath.EvalSymlinks(own); err == nil {
			own = resolved
		}
		if own != "" && (isWithin(own, real) || isWithin(real, own)) {
			return status.Errorf(codes.InvalidArgument, "mount point %s: %s is the agent's own", target, own)
		}
	}
	return nil
}

func isWithin(folder, path string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// withFSGroup moves the option fsgid=N, with which Kata's shim sends fsGroup for
// an emptyDir, to the protocol's field for it.
func withFSGroup(s *agent.Storage) (*agent.Storage, error) {
	i := slices.IndexFunc(s.GetOptions(), func(option string) bool { return strings.HasPrefix(option, "fsgid=") })
	if i < 0 {
		return s, nil
	}
	gid, err := strconv.ParseUint(strings.TrimPrefix(s.Options[i], "fsgid="), 10, 31)
	if err != nil {
		return s, fmt.Errorf("option %.40q is not a group", s.Options[i])
	}
	if s.FsGroup != nil && uint64(s.FsGroup.GetGroupId()) != gid {
		return s, fmt.Errorf("option %q, but fs_group is %d", s.Options[i], s.FsGroup.GetGroupId())
	}
	out := proto.CloneOf(s)
	out.Options = slices.Delete(slices.Clone(s.Options), i, i+1)
	out.FsGroup = cmp.Or(s.FsGroup, &agent.FSGroup{GroupId: uint32(gid), GroupChangePolicy: agent.FSGroupChangePolicy_OnRootMismatch})
	return out, nil
}

// makeLocal creates a folder, with option mode=OCTAL, unless it exists: a later
// container must not undo what the pod has changed.
func makeLocal(target string, s *agent.Storage) error {
	mode := uint64(0o755)
	for _, option := range s.GetOptions() {
		text, ok := strings.CutPrefix(option, "mode=")
		if !ok {
			return fmt.Errorf("option %.40q is not known: a local storage has mode= and fsgid=", option)
		}
		var err error
		if mode, err = strconv.ParseUint(text, 8, 12); err != nil {
			return fmt.Errorf("option %.40q: not an octal mode", option)
		}
	}
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return os.NewSyscallError("chmod", unix.Chmod(target, uint32(mode)))
}

// Folders of a pod's volumes: emptyDirs on the VM's disk, those in its memory, and network file systems.
var volumeFolder = regexp.MustCompile(`^.*?/(?:rootfs/local|sandbox/ephemeral|` + networkVolumes + `)/[^/]+`)

// volumeOf returns the volume of the pod that path is in, and where; within is empty
// for a path that is not within a volume.
func volumeOf(path string) (volume, within string) {
	path = filepath.Clean(path)
	volume = volumeFolder.FindString(path)
	if volume == "" || volume == path {
		return volume, ""
	}
	return volume, path[len(volume)+1:]
}

// unmountSources is for when the runtime has mounted them.
func (c *container) unmountSources() {
	for _, at := range c.sources {
		unix.Unmount(at, unix.MNT_DETACH)
		os.Remove(at) // nothing beneath it is removed
	}
	c.sources = nil
}

func mountEphemeral(target string, s *agent.Storage) error {
	fstype := cmp.Or(s.GetFstype(), "tmpfs")
	switch fstype {
	case "tmpfs":
	case "hugetlbfs":
		if err := reserveHugepages(s.GetOptions()); err != nil {
			return err
		}
	default: // such as the node's own disk
		return fmt.Errorf("file system %.40q is not one of memory: tmpfs, hugetlbfs", fstype)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	flags, data := mountOptions(s.GetOptions())
	if fstype == "hugetlbfs" {
		data = keepOptions(data, "pagesize", "size", "mode", "uid", "gid")
	}
	return os.NewSyscallError("mount "+fstype, unix.Mount(s.GetSource(), target, fstype, flags, data))
}

func mountBind(source, target string, s *agent.Storage) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := makeMountPoint(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return os.NewSyscallError("bind mount", err)
	}
	flags, _ := mountOptions(s.GetOptions())
	if flags &= unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC; flags == 0 {
		return nil
	}
	return os.NewSyscallError("bind remount", unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""))
}

func makeMountPoint(target string, dir bool) error {
	if dir {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// mountOptions separates flags of mount(2) from options of the file system.
func mountOptions(options []string) (flags uintptr, data string) {
	known := map[string]uintptr{
		"ro": unix.MS_RDONLY, "rw": 0, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC,
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
		"strictatime": unix.MS_STRICTATIME, "sync": unix.MS_SYNCHRONOUS, "bind": 0, "rbind": 0,
		"private": 0, "rprivate": 0, "defaults": 0,
	}
	var rest []string
	for _, option := range options {
		if flag, ok := known[option]; ok {
			flags |= flag
		} else if option != "" {
			rest = append(rest, option)
		}
	}
	return flags, strings.Join(rest, ",")
}

func keepOptions(data string, names ...string) string {
	var kept []string
	for option := range strings.SplitSeq(data, ",") {
		if name, _, _ := strings.Cut(option, "="); slices.Contains(names, name) {
			kept = append(kept, option)
		}
	}
	return strings.Join(kept, ",")
}

// reserveHugepages asks the kernel for the pages of options pagesize= and
// size=, on top of those it has.
func reserveHugepages(options []string) error {
	var page, size uint64
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "pagesize":
			page = parseSize(value)
		case "size":
			size = parseSize(value)
		}
	}
	if page == 0 || size == 0 {
		return fmt.Errorf("hugetlbfs needs the options pagesize=N[KMG] and size=N[KMG], got %q", options)
	}
	file := fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", page>>10)
	want := readUint(file) + (size+page-1)/page
	if err := os.WriteFile(file, strconv.AppendUint(nil, want, 10), 0); err != nil {
		return fmt.Errorf("huge pages of %d KiB: %w", page>>10, err)
	}
	if got := readUint(file); got < want {
		return fmt.Errorf("the VM has memory for %d of %d huge pages of %d KiB", got, want, page>>10)
	}
	return nil
}

// parseSize reads bytes with an optional suffix (2M, 1Gi, 2048kB); 0 if it is
// none.
func parseSize(text string) uint64 {
	digits := strings.TrimRight(text, "kKMGiB")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	if suffix := text[len(digits):]; suffix != "" {
		n <<= map[byte]uint{'k': 10, 'K': 10, 'M': 20, 'G': 30}[suffix[0]]
	}
	return n
}

// applyFSGroup gives a volume to a group, as Kubernetes' fsGroup: all of it
// belongs to the group, which may do what the owner may, and what is made in
// folders belongs to it too.
func applyFSGroup(target string, group *agent.FSGroup) error {
	if group == nil {
		return nil
	}
	gid := int(group.GetGroupId())
	if group.GetGroupChangePolicy() == agent.FSGroupChangePolicy_OnRootMismatch && groupOwns(target, gid) {
		return nil
	}
	// The pod may change the volume meanwhile: no link may lead out of it.
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := root.Lchown(path, -1, gid); err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := root.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		return root.Chmod(path, groupMode(info.Mode()))
	})
}

func groupOwns(target string, gid int) bool {
	info, err := os.Stat(target)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Gid) == gid && info.Mode() == info.Mode().Type()|groupMode(info.Mode())
}

// groupMode lets the group do what the owner may.
func groupMode(mode fs.FileMode) fs.FileMode {
	wanted := mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | 0o660 | mode&0o100>>3
	if mode.IsDir() {
		wanted |= fs.ModeSetgid | 0o110
	}
	return wanted
}
