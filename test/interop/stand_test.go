// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package interop drives pods through the real chain: containerd's CRI, the
// real Kata shim, cloud-api-adaptor, QEMU, the pod VM.
package interop

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/outrigger/outrigger/internal/testns"
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

// binary answers one of our own programs as `make build` left it.
func binary(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing; run: make build podvm", path)
	}
	return path
}

// stand is one node: containerd and an adaptor on QEMU.
type stand struct {
	dir        string
	containerd string // socket
	kubelet    string // kubelet's root folder as the shim knows it
	registry   *registry
}

func newStand(t *testing.T) *stand {
	t.Helper()
	testns.RequireRoot(t)
	shim := findShim(t)
	// Sandbox ids have 64 characters, unix paths 107: keep it short.
	dir, err := os.MkdirTemp("/var/tmp", "ot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &stand{dir: dir, containerd: dir + "/containerd.sock", kubelet: dir + "/kubelet"}
	s.folders(t, shim)
	s.syslog(t)
	s.registry = startRegistry(t)
	s.startAdaptor(t)
	s.startContainerd(t)
	return s
}

func (s *stand) folders(t *testing.T, shim string) {
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
func (s *stand) syslog(t *testing.T) {
	t.Helper()
	private := filepath.Join(s.dir, "dev")
	run(t, "mkdir", "-p", private)
	run(t, "mount", "-t", "tmpfs", "tmpfs", private)
	entries, err := os.ReadDir("/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, to := "/dev/"+e.Name(), filepath.Join(private, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			run(t, "cp", "-P", from, to)
		case e.IsDir():
			run(t, "mkdir", to)
			run(t, "mount", "--rbind", from, to)
		case e.Name() != "log":
			run(t, "touch", to)
			run(t, "mount", "--bind", from, to)
		}
	}
	run(t, "mount", "--move", private, "/dev")
	t.Cleanup(func() { run(t, "umount", "-l", "/dev") })
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
	s.showOnFailure(t, "shim.log")
}

func (s *stand) startAdaptor(t *testing.T) {
	t.Helper()
	cmd := s.daemon(t, "adaptor.log", binary(t, "cloud-api-adaptor"), "qemu",
		"-socket", s.dir+"/hypervisor.sock", "-pods-dir", s.dir+"/pods",
		"-qemu-state-dir", s.dir+"/qemu", "-qemu-accel", "tcg")
	cmd.Env = append(os.Environ(), "PROBE_PORT=0")
	s.start(t, cmd, s.dir+"/hypervisor.sock")
}

func (s *stand) startContainerd(t *testing.T) {
	t.Helper()
	cmd := s.daemon(t, "containerd.log", "containerd", "-c", s.dir+"/containerd.toml")
	cmd.Env = append(os.Environ(), "PATH="+s.dir+"/bin:"+os.Getenv("PATH"))
	s.start(t, cmd, s.containerd)
	run(t, "ctr", "-a", s.containerd, "-n", "k8s.io", "image", "import", s.registry.archive(t))
}

// daemon prepares a program whose output goes to a file in logs/.
func (s *stand) daemon(t *testing.T, logName, path string, args ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "logs", logName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	s.showOnFailure(t, logName)
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start runs cmd until the test ends and waits for its socket.
func (s *stand) start(t *testing.T, cmd *exec.Cmd, socket string) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			cmd.Process.Kill()
			<-done
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return
		}
		select {
		case err := <-done:
			done <- err
			t.Fatalf("%s ended: %v", cmd.Path, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("%s did not serve %s within a minute", cmd.Path, socket)
}

func (s *stand) showOnFailure(t *testing.T, logName string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		data, _ := os.ReadFile(filepath.Join(s.dir, "logs", logName))
		lines := strings.Split(string(data), "\n")
		if len(lines) > 80 {
			lines = lines[len(lines)-80:]
		}
		t.Logf("end of %s:\n%s", logName, strings.Join(lines, "\n"))
	})
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
