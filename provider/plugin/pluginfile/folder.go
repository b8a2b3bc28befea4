// SPDX-License-Identifier: Apache-2.0

package pluginfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Folder is a folder that only this user can enter. It is locked as long as
// this process lives, so that the next one can tell what a killed one left.
type Folder struct {
	Path string
	lock *os.File
}

const (
	folderPrefix = "outrigger-plugin-"
	// settled is the age of a folder whose maker has locked it, if it lives.
	settled = time.Minute
)

// NewFolder makes a folder below dir, the folder for temporary files when
// empty, and removes those there that killed processes of this user left.
func NewFolder(dir string) (*Folder, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	removeAbandoned(dir)
	path, err := os.MkdirTemp(dir, folderPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a private folder for the plugin (TMPDIR says where): %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &Folder{path, lock}, nil
}

// Remove removes the folder and all in it.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), f.lock.Close())
}

func lockFolder(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// removeAbandoned does what it can: a folder that stays harms nobody.
func removeAbandoned(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*"))
	for _, path := range paths {
		var info unix.Stat_t
		if unix.Lstat(path, &info) != nil || info.Uid != uint32(os.Geteuid()) || time.Since(time.Unix(info.Mtim.Unix())) < settled {
			continue
		}
		if lock, err := lockFolder(path); err == nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}
