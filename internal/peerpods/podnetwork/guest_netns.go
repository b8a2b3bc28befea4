// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ensureNamespace opens the namespace mounted at path and makes one if there
// is none. A file that a crash left without its mount is used again.
func ensureNamespace(path string) (*namespace, error) {
	ns, err := openNamespace(path)
	if !errors.Is(err, ErrNoNetns) {
		return ns, err
	}
	if err := createNamespace(path); err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", path, err)
	}
	return openNamespace(path)
}

func createNamespace(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	file.Close()
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
}

// onOwnThread runs f on a thread of its own and puts the thread back into its
// namespace. A thread that cannot go back ends.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
