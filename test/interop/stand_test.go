// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package interop drives pods through the real chain: containerd's CRI, a shim
// (ours, and Kata's where it is installed), cloud-api-adaptor, QEMU, the pod VM.
package interop

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// shim is one of those that a pod may run with. Both read the same
// configuration file.
type shim struct {
	path    string
	runtime string // containerd's runtime type
	name    string // what containerd runs for that type
	inARow  int    // how many pods in sequence
	execs   int    // how many execs of one container
	tidy    bool   // leaves no process and no socket
}

func ourShim(t testing.TB) shim {
	t.Helper()
	return shim{stand.Binary(t, "containerd-shim-outrigger-v2"), "io.containerd.outrigger.v2", "containerd-shim-outrigger-v2", 5, 40, true}
}

func kataShim(t testing.TB) shim {
	t.Helper()
	return shim{findKata(t), "io.containerd.kata-remote.v2", "containerd-shim-kata-remote-v2", 20, 200, false}
}

// kataVariable names the real Kata shim.
const kataVariable = "OUTRIGGER_TEST_KATA_SHIM"

// findKata returns the real Kata shim, or skips.
func findKata(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(kataVariable); path != "" {
		if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			t.Fatalf("%s=%s is not a program (%v): give the path of a containerd-shim-kata-v2", kataVariable, path, err)
		}
		return path
	}
	candidates := []string{"/opt/kata/bin/containerd-shim-kata-v2"}
	if p, err := exec.LookPath("containerd-shim-kata-v2"); err == nil {
		candidates = append(candidates, p)
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && info.Mode()&0o111 != 0 {
			return c
		}
	}
	t.Skip("no Kata shim: install Kata Containers so that containerd-shim-kata-v2 is in /opt/kata/bin or on PATH, then run: make test-interop; or name it: make test-interop KATA_SHIM=/path/to/containerd-shim-kata-v2")
	return ""
}

// containerdPath is the containerd on PATH, or another that the variable names,
// e.g. one of 2.x.
func containerdPath() string {
	return cmp.Or(os.Getenv("OUTRIGGER_TEST_CONTAINERD"), "containerd")
}

func configOfContainerd(t *testing.T) string {
	t.Helper()
	if strings.Contains(stand.Run(t, containerdPath(), "--version"), "/containerd/v2 ") {
		return containerd2Config
	}
	return containerdConfig
}

// node is one node: containerd and an adaptor on QEMU.
type node struct {
	dir        string
	shim       shim
	containerd string // socket
	kubelet    string // kubelet's root folder as the shim knows it
	registry   *stand.Registry
	daemon     *stand.Process
	parent     *testing.T
}

func newNode(t *testing.T, find func(testing.TB) shim) *node {
	t.Helper()
	testns.RequireRoot(t)
	dir := stand.Dir(t)
	s := &node{dir: dir, shim: find(t), containerd: dir + "/containerd.sock", kubelet: dir + "/kubelet"}
	s.folders(t)
	s.syslog(t)
	s.registry = stand.StartRegistry(t)
	stand.StartAdaptor(t, s.dir)
	s.startContainerd(t)
	return s
}

func (s *node) folders(t *testing.T) {
	t.Helper()
	for _, d := range []string{"bin", "cni", "kubelet", "logs"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(s.shim.path, filepath.Join(s.dir, "bin", s.shim.name)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"containerd.toml":      configOfContainerd(t),
		"shim.toml":            shimConfig,
		"cni/10-k.conflist":    cniConfig,
		"cni/99-loopback.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`,
	} {
		var out bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&out, map[string]string{"Dir": s.dir, "Runtime": s.shim.runtime}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// syslog listens where the Kata shim insists on logging. /dev is the machine's, so
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
	s.parent = t
	s.restart(t)
	stand.Run(t, "ctr", "-a", s.containerd, "-n", "k8s.io", "image", "import", s.registry.Archive(t))
}

// restart starts containerd, whose life is that of the node's test and not of
// the case that restarts it.
func (s *node) restart(t *testing.T) {
	t.Helper()
	s.daemon = stand.Start(s.parent, stand.Daemon{
		Path: containerdPath(), Args: []string{"-c", s.dir + "/containerd.toml"},
		Env: []string{"PATH=" + s.dir + "/bin:" + os.Getenv("PATH")},
		Log: s.dir + "/logs/containerd.log", Socket: s.containerd,
	})
}
