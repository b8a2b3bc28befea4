// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/test/libvirtd"
)

// A real daemon, and its own command line.
func init() { walkSites["libvirt"] = libvirtSite }

// libvirtSite is a daemon that nodes reach without SSH.
func libvirtSite(t *testing.T, w *walk) walkSite {
	emptyDisk := func(path string) error {
		return exec.Command("qemu-img", "create", "-f", "qcow2", path, "64M").Run()
	}
	base := filepath.Join(t.TempDir(), "base.qcow2")
	if err := emptyDisk(base); err != nil {
		t.Fatal(err)
	}
	daemon := libvirtd.Start(t, libvirtd.Options{Image: base, NAT: true})
	t.Cleanup(func() { daemon.WantNothing(t) })
	writes := func(names ...string) func(map[string]string) (string, error) {
		return func(map[string]string) (string, error) {
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(w.dir, name), []byte("key"), 0o600); err != nil {
					return "", err
				}
			}
			return "", nil
		}
	}
	return walkSite{
		user:         map[string]string{"LIBVIRT_DEFAULT_URI": daemon.URI},
		means:        map[string]string{"qemu:///system": daemon.URI, "qemu+ssh://root@192.168.122.1/system": daemon.URI},
		image:        emptyDisk,
		countsImages: true,
		left: func() []string {
			left, err := daemon.Leftovers()
			if err != nil {
				return []string{err.Error()}
			}
			return left
		},
		tools: map[string][]answer{
			"ssh-keygen":  {{words: "-q -t ed25519", flags: map[string]string{"-f": "id_rsa"}, says: writes("id_rsa", "id_rsa.pub")}},
			"ssh-keyscan": {{words: "192.168.122.1", says: prints("192.168.122.1 ssh-ed25519 key\n")}},
			"ssh-copy-id": {{words: "-i id_rsa.pub root@192.168.122.1"}},
		},
	}
}
