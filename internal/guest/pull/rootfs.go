// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mount makes target a writable copy of the image: an overlay whose changes
// are kept in scratch, or, where the kernel or the file system has no
// overlays, a real copy. Both folders are made and belong to the container.
func (p *Puller) Mount(ctx context.Context, img *Image, scratch, target string) error {
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, dir := range []string{upper, work, target} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("root file system: %w", err)
		}
	}
	if err := copyRootMode(img.RootFS, upper); err != nil {
		return fmt.Errorf("root file system: %w", err)
	}
	err := unix.Mount("overlay", target, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", img.RootFS, upper, work))
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("overlay of image %s at %s: %w", img.Name, target, err)
	}
	p.copied.Do(func() {
		p.cfg.Log.Warn("no overlays here: each container gets a copy of its image", "dir", p.cfg.Dir, "err", err)
	})
	return p.explainFull(copyTree(ctx, img.RootFS, target))
}

// Unmount undoes Mount; it may be called again.
func Unmount(scratch, target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	return errors.Join(os.RemoveAll(target), os.RemoveAll(scratch))
}

// copyRootMode: the root folder of an overlay is its upper one.
func copyRootMode(from, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	if err := os.Chown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.Chmod(to, st.Mode&0o7777)
}

// Forget removes all unpacked images. None may be mounted.
func (p *Puller) Forget() error {
	left, err := filepath.Glob(filepath.Join(p.cfg.Dir, "images", "*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
