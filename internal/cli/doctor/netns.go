// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNewNetns runs f in a new network namespace. Its thread is never given back,
// so it ends with its goroutine, and the namespace with it.
func inNewNetns(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("unshare: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
