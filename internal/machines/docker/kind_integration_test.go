// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

// kindData is userData, and what the machine is.
const kindData = userData + `- /bin/busybox cat /proc/1/comm > /var/lib/first
- /bin/busybox mkdir $(test -e /sys/fs/cgroup/cgroup.controllers && echo /sys/fs/cgroup/probe || echo /sys/fs/cgroup/memory/probe) && echo yes > /var/lib/cgroups
- systemctl is-active node-agent.service > /var/lib/target
`

// importKind makes an image of the shape of kind's, with neither containerd nor kubelet.
func importKind(t *testing.T, e *dockerd.Engine, name string) {
	t.Helper()
	users := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(users, []byte("root:x:0:0:root:/root:/bin/bash\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	image := dockerd.KindFiles(t)
	image["etc/passwd"], image["usr/bin/busybox"] = users, "/bin/busybox"
	e.Import(t, name, image, "ENV container=docker", `ENTRYPOINT ["`+strings.Join(dockerd.KindEntrypoint, `", "`)+`"]`)
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
