// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// TestFoldersThatAreTraps are refused, and nobody waits for them.
func TestFoldersThatAreTraps(t *testing.T) {
	for name, test := range map[string]struct {
		change func(folder string) error
		want   string
	}{
		"a pipe as metadata": {func(f string) error {
			os.Remove(filepath.Join(f, "bundle.yaml"))
			return syscall.Mkfifo(filepath.Join(f, "bundle.yaml"), 0o600)
		}, "bundle.yaml: not a regular file"},
		"a pipe":      {func(f string) error { return syscall.Mkfifo(filepath.Join(f, "assets/x.yaml"), 0o600) }, "assets/x.yaml: not a regular file"},
		"a device":    {func(f string) error { return os.Symlink("/dev/zero", filepath.Join(f, "assets/x.yaml")) }, "assets/x.yaml: not a regular file"},
		"a loop":      {func(f string) error { return os.Symlink("x.yaml", filepath.Join(f, "assets/x.yaml")) }, "stat assets/x.yaml: too many levels of symbolic links"},
		"itself":      {func(f string) error { return os.Symlink(".", filepath.Join(f, "kubernetes")) }, "kubernetes/assets: want bundle.yaml or, in one of the folders"},
		"folder loop": {func(f string) error { return os.Symlink("bootstrap", filepath.Join(f, "bootstrap")) }, "open bootstrap: too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.CopyFS(folder, files("", "")); err != nil {
				t.Fatal(err)
			}
			if err := test.change(folder); err != nil {
				t.Fatal(err)
			}
			if _, err := bundle.Load("my", os.DirFS(folder)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}
