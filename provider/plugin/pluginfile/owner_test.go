// SPDX-License-Identifier: Apache-2.0

package pluginfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// TestOthersCannotPlantAPlugin: what runs with our rights is root's or ours.
func TestOthersCannotPlantAPlugin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files away, which takes root; run: sudo go test ./provider/plugin/pluginfile")
	}
	for name, c := range map[string]struct {
		spoil func(folder, file string) error
		want  string
	}{
		"right":               {func(string, string) error { return nil }, ""},
		"root's group writes": {func(_, file string) error { return os.Chmod(file, 0o775) }, ""},
		"foreign file":        {func(_, file string) error { return os.Chown(file, 12345, 0) }, "belongs to uid 12345"},
		"foreign folder":      {func(folder, _ string) error { return os.Chown(folder, 12345, 0) }, "belongs to uid 12345"},
		"a group's file": {func(_, file string) error {
			return errors.Join(os.Chown(file, 0, 12345), os.Chmod(file, 0o775))
		}, "writable for group 12345"},
		"a group's folder": {func(folder, _ string) error {
			return errors.Join(os.Chown(folder, 0, 12345), os.Chmod(folder, 0o775))
		}, "writable for group 12345"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "plugins")
			file := filepath.Join(folder, "p")
			if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755), c.spoil(folder, file)); err != nil {
				t.Fatal(err)
			}
			f, err := Open(file)
			if err == nil {
				f.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
