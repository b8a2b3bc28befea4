// SPDX-License-Identifier: Apache-2.0

package stand

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Build returns the path of a program of the tests: a package of this module,
// linked without libc. It stays in bin/test/programs, so that it is linked once
// for all tests that want it, until its sources change.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	dir := filepath.Join(Root(), "bin/test/programs")
	path := filepath.Join(dir, filepath.Base(pkg))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Dir, cmd.Env = Root(), append(os.Environ(), "CGO_ENABLED=0", "GOGC=400")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}
