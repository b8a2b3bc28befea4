// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/libvirtd"
)

func init() {
	clouds["libvirt"] = cloud{prepare: startLibvirt, instances: domains, csi: []string{"CLOUD_PROVIDER=libvirt"}}
}

// startLibvirt runs a daemon beside the control plane. Its VMs boot without
// firmware, which is faster.
func startLibvirt(t *testing.T, own *ownCluster) map[string]string {
	t.Helper()
	d := libvirtd.Start(t, libvirtd.Options{})
	t.Cleanup(func() { d.WantNothing(t) })
	l, err := net.Listen("tcp", net.JoinHostPort(own.control.Address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go forward(l, d.Socket)
	t.Setenv("LIBVIRT_DEFAULT_URI", d.URI)
	image := libvirtd.ImageDir(t)
	return map[string]string{
		"LIBVIRT_URI": "qemu+tcp://" + l.Addr().String() + "/system", "LIBVIRT_NET": libvirtd.Network, "LIBVIRT_POOL": libvirtd.Pool,
		"LIBVIRT_VOL_NAME": libvirtd.Volume, "LIBVIRT_KERNEL": filepath.Join(image, "vmlinux"), "LIBVIRT_INITRD": filepath.Join(image, "initrd.cpio"),
		"LIBVIRT_CPU": "1", "LIBVIRT_MEMORY": "512", "LIBVIRT_ROOT_DISK_SIZE": "1",
	}
}

// forward connects who comes to l with a unix socket.
func forward(l net.Listener, socket string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			go func() { defer to.Close(); io.Copy(to, from) }()
			io.Copy(from, to)
		}()
	}
}

// domains asks libvirt, by LIBVIRT_URI as it is for this machine; without it the
// PeerPods are believed.
func domains(t *testing.T, s *suite) []string {
	t.Helper()
	uri := cmp.Or(os.Getenv("LIBVIRT_DEFAULT_URI"), os.Getenv("LIBVIRT_URI"))
	if uri == "" {
		return claimed(t, s)
	}
	out, err := exec.Command("virsh", "--quiet", "--connect", uri, "list", "--all", "--uuid").Output()
	if err != nil {
		t.Fatalf("virsh list at %s: %v", uri, err)
	}
	return strings.Fields(string(out))
}
