// SPDX-License-Identifier: Apache-2.0

// Package subpath is about parts of a pod's volumes, which containers have in place of the whole. The pod
// can put links anywhere in the volume, at any time: none leads out of it.
package subpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
)

// Make makes the folders of a path in a volume, unless the pod has made something there. As with kubelet
// they get the volume's own mode, which with fsGroup hands its group down.
func Make(volume, within string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Stat(within); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	top, err := root.Stat(".")
	if err != nil {
		return err
	}
	path := ""
	for part := range strings.SplitSeq(filepath.Clean(within), "/") {
		path = filepath.Join(path, part)
		err := root.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err := errors.Join(err, root.Chmod(path, top.Mode())); err != nil {
			return err
		}
	}
	return nil
}

// Mount mounts what is at a path in a volume at a place of its own.
func Mount(volume, within, at string) error {
	dir, err := beneath.Open(volume, beneath.Refuse)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := dir.Open(within, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.MkdirAll(at, 0o755)
	} else {
		err = makeFile(at)
	}
	if err != nil {
		return err
	}
	return os.NewSyscallError("bind mount", unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), at, "", unix.MS_BIND|unix.MS_REC, ""))
}

// makeFile makes an empty file, over which a file can be mounted.
func makeFile(at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(at, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}
