// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"os"
	"path"
	"strings"

	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
	"golang.org/x/sys/unix"
)

// whiteout removes what lower layers brought; what this layer brought stays,
// whichever came first in the archive.
func (u *unpacker) whiteout(parent int, rel, base string) error {
	switch {
	case u.first:
		return nil
	case base == opaqueMarker:
		return u.hideChildren(parent, ".", path.Dir(rel))
	case strings.HasPrefix(base, whiteoutMeta):
		return nil // AUFS's own files
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return &os.PathError{Op: "whiteout", Path: rel, Err: unix.EINVAL}
	}
	return u.hide(parent, name, path.Join(path.Dir(rel), name))
}

func (u *unpacker) hideChildren(dirfd int, name, rel string) error {
	return beneath.EachChild(dirfd, name, func(fd int, child string) error {
		return u.hide(fd, child, path.Join(rel, child))
	})
}

func (u *unpacker) hide(dirfd int, name, rel string) error {
	if _, ours := u.added[rel]; !ours {
		return beneath.RemoveAll(dirfd, name)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	return u.hideChildren(dirfd, name, rel)
}

func (u *unpacker) remember(rel string) {
	for ; rel != "."; rel = path.Dir(rel) {
		if _, known := u.added[rel]; known {
			return
		}
		u.added[rel] = struct{}{}
	}
}
