// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// terminationMessage is the file of a container's termination message: the kubelet
// makes it, the container writes it, and the kubelet reads it when the container has
// ended. host is the kubelet's file, guest the copy that the container writes.
type terminationMessage struct{ host, guest string }

// isTerminationMessage reports whether a path is one of the kubelet's files for
// termination messages,
// <root>/pods/<uid>/containers/<name>/<hash>.
func isTerminationMessage(source string) bool {
	parts := strings.Split(filepath.Clean(source), "/")
	n := len(parts)
	if n < 5 || parts[n-3] != "containers" || parts[n-5] != "pods" {
		return false
	}
	info, err := os.Lstat(source)
	return err == nil && info.Mode().IsRegular()
}

// fetchTerminationMessage copies the message to the node before the node learns of
// the exit.
func (s *Service) fetchTerminationMessage(ctx context.Context, c *container) {
	if c.termination == nil {
		return
	}
	data, known, err := c.vm.pod.ReadCopied(ctx, c.termination.guest)
	if err == nil && known {
		err = c.termination.write(data)
	}
	switch {
	case err != nil && c.vm.pod.Err() == nil:
		s.log.Warn("the container's termination message stays in the VM", "container", c.id, "error", err)
	case !known && err == nil:
		s.log.Debug("the guest's agent cannot return termination messages", "container", c.id)
	}
}

// write replaces the content of the kubelet's file, but not the file itself.
func (w *terminationMessage) write(data []byte) error {
	file, err := os.OpenFile(w.host, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}
