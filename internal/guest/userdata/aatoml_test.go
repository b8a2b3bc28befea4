// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// TestFileWithoutInitDataIsKept has user-data bring the file that an empty
// initdata would bring too.
func TestFileWithoutInitDataIsKept(t *testing.T) {
	const want = "[token_configs]\n"
	dir, err := provision(t, text(document(t, cloudinit.WriteFile{Path: "/run/peerpod/aa.toml", Content: want})))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "aa.toml")); err != nil || string(got) != want {
		t.Errorf("aa.toml is %q, %v, want %q", got, err, want)
	}
}
