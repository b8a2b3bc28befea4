// SPDX-License-Identifier: Apache-2.0

package dockerd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/ociimage"
)

// KindEntrypoint is what kind's node images start with.
var KindEntrypoint = []string{"/usr/local/bin/entrypoint", "/sbin/init"}

// kindScript does what that of kind's images does before systemd, as far as it needs rights.
const kindScript = `#!/bin/bash
set -o errexit -o nounset
[[ -e /dev/kmsg ]] || ln -s /dev/console /dev/kmsg
mount -o remount,ro /sys
mount --make-rshared /
rm -f /etc/machine-id
systemd-machine-id-setup
exec "$@"
`

// KindFiles returns files of an image of the shape of kind's, for [Engine.Import]: Debian's
// systemd, which this machine has, behind a script.
func KindFiles(t testing.TB) map[string]string {
	t.Helper()
	files := ociimage.Files{}
	for _, program := range []string{"bash", "ln", "mount", "rm", "mkdir", "systemctl", "systemd-machine-id-setup"} {
		at, err := exec.LookPath(program)
		if err != nil {
			t.Fatalf("%v: the image is made of this machine's programs: run make setup, which installs systemd", err)
		}
		files["/usr/bin/"+program] = at
	}
	const systemd = "/usr/lib/systemd/"
	for _, pattern := range []string{"systemd", "systemd-journald", "systemd-executor", "systemd-shutdown", "system/*.target", "system/*.slice", "system/systemd-journald*", "system/-.mount"} {
		found, err := filepath.Glob(systemd + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			files[file] = file
		}
	}
	if err := files.AddLibraries(); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "entrypoint")
	if err := os.WriteFile(script, []byte(kindScript), 0o755); err != nil {
		t.Fatal(err)
	}
	image := map[string]string{"usr/local/bin/entrypoint": script, "bin": "->usr/bin", "sbin": "->usr/sbin", "lib": "->usr/lib", "lib64": "->usr/lib64",
		"usr/sbin/init": "->../lib/systemd/systemd", "usr/bin/sh": "->bash", "etc/systemd/system/default.target": "->/usr/lib/systemd/system/multi-user.target"}
	for inside, source := range files {
		if inside = strings.TrimPrefix(inside, "/"); !strings.HasPrefix(inside, "usr/") {
			inside = "usr/" + inside // Debian's folders are one
		}
		image[inside] = source
	}
	return image
}
