// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/guest/subpath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// MountPart mounts a part of a mounted volume for a container, and makes it first if it is missing.
func (d *Disks) MountPart(container string, st *agent.Storage) error {
	volume, point := filepath.Clean(st.Source), filepath.Clean(st.MountPoint)
	if filepath.Dir(volume) != directvolume.GuestFolder || filepath.Dir(point) != partsOf(container) || !isPart(point) ||
		len(st.Options) != 1 || !filepath.IsLocal(st.Options[0]) {
		return fmt.Errorf("a part %.100q of a volume at %.100q", st.Options, st.MountPoint)
	}
	err := subpath.Make(volume, st.Options[0])
	if err == nil {
		err = subpath.Mount(volume, st.Options[0], point)
	}
	if err != nil {
		return fmt.Errorf("subPath %.100q: %w", st.Options[0], err)
	}
	return nil
}

func partsOf(container string) string {
	return filepath.Join(directvolume.GuestParts, container)
}

func isPart(point string) bool { return filepath.Dir(filepath.Dir(point)) == directvolume.GuestParts }

// UnmountParts unmounts the parts of volumes that a container had.
func (d *Disks) UnmountParts(container string) {
	folder := partsOf(container)
	parts, _ := os.ReadDir(folder) // most containers have none
	for _, part := range parts {
		at := filepath.Join(folder, part.Name())
		if !isPart(at) {
			continue
		}
		if err := errors.Join(unix.Unmount(at, unix.MNT_DETACH), os.Remove(at)); err != nil { // nothing beneath it is removed
			d.Log("a part of a volume is not unmounted", "container", container, "error", err)
		}
	}
	os.Remove(folder)
}
