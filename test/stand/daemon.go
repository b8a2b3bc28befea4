// SPDX-License-Identifier: Apache-2.0

// Package stand starts real parts for tests: our own daemons as `make build`
// left them, containerd, a registry. Everything ends with the test.
package stand

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Dir returns a new folder whose path is short: sandbox ids have 64
// characters, and the path of a unix socket may have 107 (unix(7)).
func Dir(t testing.TB) string {
	t.Helper()
	for {
		dir := fmt.Sprintf("/var/tmp/o%04x", rand.IntN(1<<16))
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
}

// Binary returns the path of one of our own programs in bin/.
func Binary(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(), "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing; run: make build podvm demo-image", path)
	}
	return path
}

// BinaryAs returns a program of bin/ under another name: a process plugin's is
// that of its provider.
func BinaryAs(t testing.TB, binary, name string) string {
	t.Helper()
	return As(t, Binary(t, binary), name)
}

// As returns a program under another name.
func As(t testing.TB, program, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if os.Link(program, path) == nil {
		return path
	}
	data, err := os.ReadFile(program) // on another file system
	if err == nil {
		err = os.WriteFile(path, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// started is the folder in which this process was started: a test may change it.
var started, _ = os.Getwd()

// Root returns the top of the source tree in which this process was started.
// Programs built with -trimpath do not know where their source was.
func Root() string {
	for dir := started; ; dir = filepath.Dir(dir) {
		text, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if bytes.HasPrefix(text, []byte("module github.com/outrigger/outrigger\n")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic(started + " is not in a checkout of github.com/outrigger/outrigger")
		}
	}
}

// Daemon is a program that serves a unix socket.
type Daemon struct {
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Log receives standard output and error; its end is shown if the test fails.
	Log string
	// Socket is what Start waits for, if there is one.
	Socket string
}

// Process is a started daemon.
type Process struct {
	*os.Process
	daemon Daemon
	done   chan struct{}
}

// Start runs d until the test ends, and returns when its socket is served.
func Start(t testing.TB, d Daemon) *Process {
	t.Helper()
	ShowOnFailure(t, d.Log)
	p := &Process{daemon: d}
	p.launch(t)
	t.Cleanup(func() { p.Stop(syscall.SIGTERM) })
	p.waitServed(t)
	return p
}

// Again starts a daemon that has ended, with more variables if there are any.
func (p *Process) Again(t testing.TB, env ...string) {
	t.Helper()
	p.daemon.Env = append(slices.Clip(p.daemon.Env), env...)
	p.launch(t)
	p.waitServed(t)
}

func (p *Process) launch(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(p.daemon.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.daemon.Path, p.daemon.Args...)
	cmd.Env = append(os.Environ(), p.daemon.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	p.Process, p.done = cmd.Process, done
	go func() { cmd.Wait(); close(done) }()
}

// Ended is closed when the daemon has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Stop sends the signal, waits for the end, and kills what stays too long.
func (p *Process) Stop(signal syscall.Signal) {
	p.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.Kill()
		<-p.done
	}
}

// Restart kills the daemon with SIGKILL and starts it again.
func (p *Process) Restart(t testing.TB) *Process {
	t.Helper()
	p.Stop(syscall.SIGKILL)
	p.Again(t)
	return p
}

func (p *Process) waitServed(t testing.TB) {
	t.Helper()
	if p.daemon.Socket == "" {
		return
	}
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if c, err := net.Dial("unix", p.daemon.Socket); err == nil {
			c.Close()
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before it served %s", p.daemon.Path, p.daemon.Socket)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("%s did not serve %s within a minute", p.daemon.Path, p.daemon.Socket)
}

// StartAdaptor runs cloud-api-adaptor on QEMU without KVM, with everything of
// its own in dir: hypervisor.sock, pods, qemu, adaptor.log.
func StartAdaptor(t testing.TB, dir string, flags ...string) *Process {
	t.Helper()
	args := append([]string{
		"qemu", "-socket", dir + "/hypervisor.sock", "-pods-dir", dir + "/pods",
		"-qemu-state-dir", dir + "/qemu", "-qemu-accel", "tcg",
	}, flags...)
	p := Start(t, Daemon{
		Path: Binary(t, "cloud-api-adaptor"), Args: args, Env: []string{"PROBE_PORT=0", "INSECURE_REGISTRIES=@node," + Gateway},
		Log: dir + "/adaptor.log", Socket: dir + "/hypervisor.sock",
	})
	ShowOnFailure(t, dir+"/qemu/instances/*/console.log") // before the instances are removed
	return p
}

// ShowOnFailure logs the ends of the files that a pattern matches, if the test fails.
func ShowOnFailure(t testing.TB, pattern string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			data, _ := os.ReadFile(path)
			lines := strings.Split(string(data), "\n")
			t.Logf("end of %s:\n%s", path, strings.Join(lines[max(0, len(lines)-80):], "\n"))
		}
	})
}

// Run runs a command and returns its output; failure ends the test.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// QEMUs returns the process ids of the QEMUs whose files are in dir.
func QEMUs(dir string) []int {
	var found []int
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		program, _, _ := strings.Cut(string(line), "\x00")
		// The provider starts QEMU in the instance's folder.
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(p), "cwd"))
		if strings.HasPrefix(filepath.Base(program), "qemu-system") && strings.HasPrefix(cwd, dir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			found = append(found, pid)
		}
	}
	return found
}
