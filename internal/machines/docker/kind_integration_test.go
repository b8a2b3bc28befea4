// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

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

// kindData is userData, and what the machine is.
const kindData = userData + `- /bin/busybox cat /proc/1/comm > /var/lib/first
- /bin/busybox mkdir $(test -e /sys/fs/cgroup/cgroup.controllers && echo /sys/fs/cgroup/probe || echo /sys/fs/cgroup/memory/probe) && echo yes > /var/lib/cgroups
- systemctl is-active node-agent.service > /var/lib/target
`

// importKind makes an image of the shape of kind's: Debian's systemd, which this machine has,
// behind a script. It has neither containerd nor kubelet.
func importKind(t *testing.T, e *dockerd.Engine, name string) {
	t.Helper()
	files := ociimage.Files{"/bin/busybox": "/bin/busybox"}
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
	users := filepath.Join(t.TempDir(), "passwd")
	for file, text := range map[string]string{script: kindScript, users: "root:x:0:0:root:/root:/bin/bash\n"} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	image := map[string]string{"usr/local/bin/entrypoint": script, "etc/passwd": users, "bin": "->usr/bin", "sbin": "->usr/sbin", "lib": "->usr/lib", "lib64": "->usr/lib64",
		"usr/sbin/init": "->../lib/systemd/systemd", "usr/bin/sh": "->bash", "etc/systemd/system/default.target": "->/usr/lib/systemd/system/multi-user.target"}
	for inside, source := range files {
		if inside = strings.TrimPrefix(inside, "/"); !strings.HasPrefix(inside, "usr/") {
			inside = "usr/" + inside // Debian's folders are one
		}
		image[inside] = source
	}
	e.Import(t, name, image, "ENV container=docker", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`)
}

// TestImageOfKind: a machine from an image of the shape of kind's boots with systemd as its
// first process, with no more rights than other machines have, and its bootstrap is done by
// the node agent, a unit. The engine's death is survived as by other machines.
func TestImageOfKind(t *testing.T) {
	const image = "test/kindest-node:v1.36.3"
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	importKind(t, d.Engine, image)
	b := open(t, testConfig(d.Engine))
	b.nodeAgent = stand.Binary(t, "node-agent") // this process is none
	w := newWorld("default", "kind")
	w.ensureCluster(t, b)
	s := w.add("cp", true)
	s.Bootstrap, specOf(s).CustomImage = []byte(kindData), image
	state := w.ensure(t, b, s)
	container := strings.TrimPrefix(state.ProviderID, providerPrefix)
	for name, want := range map[string]string{"first": "systemd\n", "cgroups": "yes\n", "target": "active\n", "ran": "ran\n"} {
		if got, err := d.ReadFile(container, "/var/lib/"+name); err != nil || got != want {
			t.Errorf("/var/lib/%s: %q, %v; want %q", name, got, err, want)
		}
	}
	address := net.JoinHostPort(state.Addresses[1].Address, "6443")
	answers(t, address, "cp")
	answers(t, endpointOf(w), "cp")
	restartAll(t, b, w, func() { d.Restart(t) })
	answers(t, address, "cp")
	if got, err := d.ReadFile(container, "/var/lib/ran"); err != nil || got != "ran\n" {
		t.Errorf("the bootstrap ran so often: %q, %v", got, err)
	}
	deleteMachine(t, b, s)
	w.deleteCluster(t, b)
}
