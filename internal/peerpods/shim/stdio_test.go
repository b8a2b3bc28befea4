// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOutputOutlivesDelete has a reader that comes after the process was deleted, as
// containerd may when it has restarted.
func TestOutputOutlivesDelete(t *testing.T) {
	for name, patience := range map[string]time.Duration{"in time": time.Hour, "too late": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stdout")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := paths{stdout: path}.open()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.stdout.WriteString("last words\n"); err != nil {
				t.Fatal(err)
			}
			s.Finish()
			s.Release(patience)
			if name == "too late" {
				for unread(s.stdout) > 0 { // until it is closed
					time.Sleep(time.Millisecond)
				}
				return
			}
			reader, err := openFIFO(path, unix.O_RDONLY)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			reader.SetReadDeadline(time.Now().Add(time.Minute))
			if got, err := io.ReadAll(reader); err != nil || string(got) != "last words\n" {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}
