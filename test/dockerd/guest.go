// SPDX-License-Identifier: Apache-2.0

package dockerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// Guest is an image of the pod VM's root file system.
const Guest = "podvm-guest:latest"

// guestScript starts in a container what podvm-init starts in a VM. podvm-init
// itself would mount what is mounted, load modules into the engine's kernel and
// set sysctls of the whole machine.
const guestScript = "/usr/local/bin/process-user-data provision-files || exit 1; /usr/local/bin/podvm-agent & exec /usr/local/bin/agent-protocol-forwarder"

// ImportGuest makes that image from the pod VM's initramfs.
func (e *Engine) ImportGuest(t testing.TB) {
	t.Helper()
	root := t.TempDir()
	initrd, err := os.Open(stand.Binary(t, "podvm/initrd.cpio"))
	if err != nil {
		t.Fatal(err)
	}
	defer initrd.Close()
	cmd := exec.Command("cpio", "--extract", "--make-directories", "--quiet", "--no-absolute-filenames")
	cmd.Dir, cmd.Stdin = root, initrd
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("extract the initramfs: %v\n%s", err, out)
	}
	// No container has a use for these. /init stays: it is all programs in one.
	for _, name := range []string{"dev", "modules"} {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	e.load(t, Guest, guestScript, root)
}
