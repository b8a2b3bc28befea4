// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine is a folder with a checkout's build scripts, and a PATH on which the
// programs that say what a machine is like can be replaced.
type machine struct {
	dir, path string
	env       []string
}

// programs that the machine's own PATH has, without Go, Debian's package
// manager, and what reports the machine.
var programs = []string{
	"bash", "env", "awk", "sed", "sort", "head", "tail", "cut", "grep", "date", "mktemp", "mkdir", "rm", "touch",
	"find", "dirname", "cat", "printf", "chmod", "sleep", "git",
}

func newMachine(t *testing.T) *machine {
	m := &machine{dir: t.TempDir()}
	m.path = filepath.Join(m.dir, "path")
	for _, dir := range []string{"path", "build"} {
		if err := os.Mkdir(filepath.Join(m.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"build/demo.sh", "build/setup.sh", "go.mod"} {
		data, err := os.ReadFile(filepath.Join("../..", file))
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, file), data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(m.path, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.has(t, "uname", `case $1 in -s) echo Linux ;; -m) echo x86_64 ;; esac`)
	m.has(t, "id", "echo 0")
	m.has(t, "df", "echo Avail; echo 90000000")
	m.has(t, "dpkg-query", "echo installed")
	m.has(t, "dpkg", "")
	m.has(t, "apt-get", "exit 1")
	m.go1(t, "go1.26.0", "exit 1")
	return m
}

// has puts a shell script on the machine's PATH.
func (m *machine) has(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.path, name), []byte("#!/usr/bin/env bash\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// go1 puts a Go on PATH whose `go build` is a script.
func (m *machine) go1(t *testing.T, version, build string) {
	t.Helper()
	m.has(t, "go", fmt.Sprintf(`case "$1 $2" in
"env GOVERSION") echo %s ;;
"env GOTOOLCHAIN") echo "${GOTOOLCHAIN:-auto}" ;;
"env GOPROXY") echo https://proxy.golang.org,direct ;;
"env "*) echo "$HOME/$2" ;;
"build "*) %s ;;
esac`, version, build))
}

func (m *machine) demo() *exec.Cmd {
	cmd := exec.Command("bash", filepath.Join(m.dir, "build/demo.sh"))
	cmd.Env = append([]string{"PATH=" + m.path, "HOME=" + m.dir, "TMPDIR=" + m.dir}, m.env...)
	return cmd
}

func TestMachinesThatCannot(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *machine)
		want   string
	}{
		"another architecture": {
			func(t *testing.T, m *machine) {
				m.has(t, "uname", `case $1 in -s) echo Linux ;; -m) echo aarch64 ;; esac`)
			},
			"demo: this machine is Linux/aarch64: the guest image is made of Debian's amd64 packages, so run the demo on Linux/x86_64",
		},
		"not root": {
			func(t *testing.T, m *machine) { m.has(t, "id", "echo 1000") },
			`demo: a VM's network needs root: run sudo -E env PATH="$PATH" make demo`,
		},
		"no Go": {
			func(t *testing.T, m *machine) { os.Remove(filepath.Join(m.path, "go")) },
			"demo: Go is missing: install Go 1.26.0 or later from https://go.dev/dl and put it on PATH",
		},
		"old Go": {
			func(t *testing.T, m *machine) { m.go1(t, "go1.19.8", "exit 1") },
			"demo: Go 1.19.8 is too old: install Go 1.26.0 or later from https://go.dev/dl and put it on PATH",
		},
		"old Go that must fetch none": {
			func(t *testing.T, m *machine) { m.go1(t, "go1.24.1", "exit 1"); m.env = []string{"GOTOOLCHAIN=local"} },
			"demo: Go 1.24.1 is too old: install Go 1.26.0 or later from https://go.dev/dl and put it on PATH",
		},
		"little space": {
			func(t *testing.T, m *machine) { m.has(t, "df", "echo Avail; echo 99000") },
			"has 99 MB left and the demo takes 1.5 GB: free some, or name another folder with GOCACHE, GOMODCACHE or OUTRIGGER_CACHE",
		},
		"a disk that fills": {
			func(t *testing.T, m *machine) {
				m.go1(t, "go1.26.0", "echo 'write /tmp/x: no space left on device' >&2; exit 1")
			},
			"demo: builder: the disk is full: free some space and run make demo again; it goes on from there",
		},
		"no network for Go": {
			func(t *testing.T, m *machine) {
				m.go1(t, "go1.24.1", "echo 'dial tcp: lookup proxy.golang.org: no such host' >&2; exit 1")
			},
			"demo: builder: the network could not be used: see that this machine reaches https://proxy.golang.org,direct (Go modules) and Debian's mirrors",
		},
		"no network for Debian": {
			func(t *testing.T, m *machine) {
				m.go1(t, "go1.26.0", "exit 0")
				m.has(t, "dpkg-query", "exit 1")
				m.has(t, "apt-get", `echo "Err:1 Temporary failure resolving 'deb.debian.org'"; exit 100`)
			},
			"setup: Debian's packages cannot be fetched: see that this machine reaches the mirrors of /etc/apt/sources.list*",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			c.change(t, m)
			out, err := m.demo().CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != 1 {
				t.Errorf("%v, not exit status 1", err)
			}
			if !strings.Contains(string(out), c.want) {
				t.Errorf("it says\n%s\nwithout: %s", out, c.want)
			}
		})
	}
}

// TestInterrupted: ^C ends the demo and what it has started.
func TestInterrupted(t *testing.T) {
	m := newMachine(t)
	m.go1(t, "go1.26.0", `echo $$ >"$HOME/compiling"; exec sleep 1000`)
	cmd := m.demo()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	compiling := filepath.Join(m.dir, "compiling")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if pid, _ := os.ReadFile(compiling); bytes.HasSuffix(pid, []byte("\n")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was compiled: %s", out.String())
		}
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // as a terminal does
	err := cmd.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 130 {
		t.Errorf("%v, not exit status 130", err)
	}
	if want := "demo: interrupted; what is done stays: the next make demo goes on from there"; !strings.Contains(out.String(), want) {
		t.Errorf("it says\n%s", out.String())
	}
	pid, _ := os.ReadFile(compiling)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Errorf("process %s still runs", pid)
	}
}
