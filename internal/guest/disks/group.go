// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// setGroup gives all files of a volume the pod's fsGroup; by the policy OnRootMismatch
// unless the volume's root has it.
func setGroup(point string, group *agent.FSGroup) error {
	if group == nil {
		return nil
	}
	gid := int(group.GroupId)
	var st unix.Stat_t
	if err := unix.Stat(point, &st); err != nil {
		return err
	}
	if group.GroupChangePolicy == agent.FSGroupChangePolicy_OnRootMismatch && int(st.Gid) == gid && st.Mode&unix.S_ISGID != 0 {
		return nil
	}
	root, err := os.OpenRoot(point)
	if err != nil {
		return err
	}
	defer root.Close()
	var folders []string
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			folders = append(folders, path) // the root last: with it the whole is done
			return nil
		}
		return setGroupOf(root, path, gid, e.Type()&fs.ModeSymlink != 0)
	})
	for i := len(folders) - 1; i >= 0 && err == nil; i-- {
		err = setGroupOf(root, filepath.Clean(folders[i]), gid, false)
	}
	return err
}

func setGroupOf(root *os.Root, path string, gid int, link bool) error {
	if err := root.Lchown(path, -1, gid); err != nil || link {
		return err
	}
	info, err := root.Lstat(path)
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return err
	}
	mode := info.Mode() | 0o660
	if info.IsDir() {
		mode |= 0o110 | fs.ModeSetgid
	}
	return root.Chmod(path, mode)
}
