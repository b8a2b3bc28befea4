// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package interop drives pods through the real chain: containerd's CRI, the
// real Kata shim, cloud-api-adaptor, QEMU, the pod VM.
package interop

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/outrigger/outrigger/internal/testns"
	"github.com/outrigger/outrigger/test/stand"
)

func TestMain(m *testing.M) { testns.Main(m) }

// shimName is what containerd runs for runtime type io.containerd.kata-remote.v2.
const shimName = "containerd-shim-kata-remote-v2"

// findShim answers the real Kata shim, or skips.
func findShim(t testing.TB) string {
	t.Helper()
	candidates := []string{"/opt/kata/bin/containerd-shim-kata-v2"}
	if p, err := exec.LookPath("containerd-shim-kata-v2"); err == nil {
		candidates = append(candidates, p)
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode()&0o111 != 0 {
			return c
		}
	}
	t.Skip("no Kata shim: install Kata Containers so that containerd-shim-kata-v2 is in /opt/kata/bin or on PATH, then run: make test-interop")
	return ""
}

// node is one node: containerd and an adaptor on QEMU.
type node struct {
	dir        string
	containerd string // socket
	kubelet    string // kubelet's root folder as the shim knows it
	registry   *stand.Registry
}

func newNode(t *testing.T) *node {
	t.Helper()
	testns.RequireRoot(t)
	shim := findShim(t)
	dir := stand.Dir(t)
	s := &node{dir: dir, containerd: dir + "/containerd.sock", kubelet: dir + "/kubelet"}
	s.folders(t, shim)
	s.syslog(t)
	s.registry = stand.StartRegistry(t)
	stand.StartAdaptor(t, s.dir)
	s.startContainerd(t)
	return s
}

func (s *node) folders(t *testing.T, shim string) {
	t.Helper()
	for _, d := range []string{"bin", "cni", "kubelet", "logs"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(shim, filepath.Join(s.dir, "bin", shimName)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"containerd.toml":      containerdConfig,
		"shim.toml":            shimConfig,
		"cni/10-k.conflist":    cniConfig,
		"cni/99-loopback.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`,
	} {
		var out bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&out, map[string]string{"Dir": s.dir}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// syslog listens where the shim insists on logging. /dev is the machine's, so
// a private copy is put over it first.
func (s *node) syslog(t *testing.T) {
	t.Helper()
	private := filepath.Join(s.dir, "dev")
	stand.Run(t, "mkdir", "-p", private)
	stand.Run(t, "mount", "-t", "tmpfs", "tmpfs", private)
	entries, err := os.ReadDir("/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, to := "/dev/"+e.Name(), filepath.Join(private, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			stand.Run(t, "cp", "-P", from, to)
		case e.IsDir():
			stand.Run(t, "mkdir", to)
			stand.Run(t, "mount", "--rbind", from, to)
		case e.Name() != "log":
			stand.Run(t, "touch", to)
			stand.Run(t, "mount", "--bind", from, to)
		}
	}
	stand.Run(t, "mount", "--move", private, "/dev")
	t.Cleanup(func() { stand.Run(t, "umount", "-l", "/dev") })
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/dev/log", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(s.dir, "logs", "shim.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); log.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			fmt.Fprintf(log, "%s\n", bytes.TrimRight(buf[:n], "\n\x00"))
		}
	}()
	stand.ShowOnFailure(t, log.Name())
}

func (s *node) startContainerd(t *testing.T) {
	t.Helper()
	stand.Start(t, stand.Daemon{
		Path: "containerd", Args: []string{"-c", s.dir + "/containerd.toml"},
		Env: []string{"PATH=" + s.dir + "/bin:" + os.Getenv("PATH")},
		Log: s.dir + "/logs/containerd.log", Socket: s.containerd,
	})
	stand.Run(t, "ctr", "-a", s.containerd, "-n", "k8s.io", "image", "import", s.registry.Archive(t))
}
