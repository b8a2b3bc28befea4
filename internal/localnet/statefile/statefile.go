// SPDX-License-Identifier: Apache-2.0

// Package statefile keeps small files that several processes read and write,
// any of which may die at any instant: locks that go away with their holder,
// and writes that are seen whole or not at all.
package statefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is how often a waiting Acquire looks again. flock cannot wait for
// a lock and a context at once.
const pollEvery = 2 * time.Millisecond

// Lock is an exclusive lock on a file. The kernel releases it when the process
// that holds it ends, however it ends.
type Lock struct{ file *os.File }

// Acquire waits for the lock until ctx ends. The file, and the folder it is
// in, are made when missing.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	for {
		lock, err := TryAcquire(path)
		if lock != nil || err != nil {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
		case <-time.After(pollEvery):
		}
	}
}

// TryAcquire returns nil without an error when somebody else holds the lock.
func TryAcquire(path string) (*Lock, error) {
	file, err := openLockFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return nil, nil // the folder went away again: somebody else is at work
	}
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && stillThere(file, path) {
		return &Lock{file}, nil
	}
	file.Close()
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

func openLockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// stillThere tells a lock on the file at path from one on a file that the
// holder before us has removed.
func stillThere(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(mine, now)
}

// Release lets the next one in.
func (l *Lock) Release() { l.file.Close() }

// ReleaseAndRemove also removes the file. Who waits for the lock makes it
// again.
func (l *Lock) ReleaseAndRemove() {
	os.Remove(l.file.Name())
	l.file.Close()
}

// Write replaces the file at path with the JSON of v. After a crash at any
// instant, also of the machine, the file holds the old or the new content.
func Write(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	temp := path + ".new"
	if err := writeSynced(temp, append(data, '\n')); err != nil {
		os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncFolder(filepath.Dir(path))
}

func writeSynced(path string, data []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(data); err != nil {
		return err
	}
	return file.Sync()
}

// SyncFolder makes names in a folder durable.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // some file systems cannot
		return fmt.Errorf("sync folder %s: %w", path, err)
	}
	return nil
}

// Read fills v from the file at path. A missing file is fs.ErrNotExist.
func Read(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("state file %s is damaged (%w); if nothing of it is in use any more, remove it", path, err)
	}
	return nil
}
