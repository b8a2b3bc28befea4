// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNotRun: clients tell commands that cannot be run by runc's words, whatever
// runtime is there.
func TestNotRun(t *testing.T) {
	for _, c := range []struct{ command, text, want string }{
		{"nosuch", "crun create: executable file `nosuch` not found in $PATH: No such file or directory", `exec: "nosuch": executable file not found in $PATH`},
		{"/no/such", "crun exec: executable file `/no/such` not found in $PATH: No such file or directory", `exec: "/no/such": stat /no/such: no such file or directory`},
		{"/etc/passwd", "crun create: open executable: Permission denied", `exec: "/etc/passwd": permission denied`},
		{"/", "crun exec: open executable: Operation not permitted", `exec: "/": permission denied`},
		{"sh", "crun create: open `/proc/sys/x`: No such file or directory", "crun create: open `/proc/sys/x`: No such file or directory"},
		{"sh", `runc create: exec: "sh": executable file not found in $PATH`, `runc create: exec: "sh": executable file not found in $PATH`},
	} {
		if got := notRun([]string{c.command}, errors.New(c.text)).Error(); got != c.want {
			t.Errorf("%s: %s; got %s, want %s", c.command, c.text, got, c.want)
		}
	}
	if err := notRun([]string{"sh"}, nil); err != nil {
		t.Error(err)
	}
}

// TestFindRuntime: a runtime that is named is taken or refused; else there has to
// be one.
func TestFindRuntime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := findRuntime(""); err == nil || !strings.Contains(err.Error(), "neither runc nor crun") {
		t.Errorf("none: %v", err)
	}
	for _, name := range []string{"crun", "runc"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if got, err := findRuntime(""); got != file || err != nil {
			t.Errorf("with %s: %q, %v", name, got, err)
		}
	}
	if _, err := findRuntime("youki"); err == nil || !strings.Contains(err.Error(), "-runc=youki") {
		t.Errorf("named: %v", err)
	}
}

// TestRuntimeIsASealedCopy: the copy runs, nobody can write to it, and it has the seals by
// which a runtime knows that it need not copy itself (crun 1.8.1, cloned_binary.c; runc 1.2,
// libcontainer/dmz).
func TestRuntimeIsASealedCopy(t *testing.T) {
	file, err := sealed("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
	if out, err := exec.Command(path).CombinedOutput(); err != nil {
		t.Errorf("the copy does not run: %v %s", err, out)
	}
	seals, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE; err != nil || seals != want {
		t.Errorf("seals %#x, %v; want %#x", seals, err, want)
	}
	if err := os.WriteFile(path, []byte("other"), 0); err == nil {
		t.Error("the copy can be written to")
	}
}
