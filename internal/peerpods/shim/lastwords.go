// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lastWords is a container's termination message: a file that the kubelet makes,
// the container writes, and the kubelet reads when the container has ended. The
// container's is a copy in the guest.
type lastWords struct{ host, guest string }

// isLastWords reports whether a path is one of the kubelet's files for that:
// <root>/pods/<uid>/containers/<name>/<hash>.
func isLastWords(source string) bool {
	parts := strings.Split(filepath.Clean(source), "/")
	n := len(parts)
	if n < 5 || parts[n-3] != "containers" || parts[n-5] != "pods" {
		return false
	}
	info, err := os.Lstat(source)
	return err == nil && info.Mode().IsRegular()
}

// fetchLastWords brings them to the node before the exit is known there.
func (s *Service) fetchLastWords(ctx context.Context, c *container) {
	if c.words == nil {
		return
	}
	data, known, err := c.vm.pod.ReadCopied(ctx, c.words.guest)
	if err == nil && known {
		err = c.words.write(data)
	}
	switch {
	case err != nil && c.vm.pod.Err() == nil:
		s.log.Warn("the container's termination message stays in the VM", "container", c.id, "error", err)
	case !known && err == nil:
		s.log.Debug("the guest's agent cannot return termination messages", "container", c.id)
	}
}

// write replaces what is in the file, which stays the kubelet's.
func (w *lastWords) write(data []byte) error {
	file, err := os.OpenFile(w.host, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
