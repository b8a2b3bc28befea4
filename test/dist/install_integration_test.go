// SPDX-License-Identifier: Apache-2.0

//go:build integration

package dist

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/test/stand"
)

// install installs the package into a root that has the packages that it
// depends on and nothing else: no Go, no shell, no busybox, no sources.
func install(t *testing.T, made string) {
	deb := one(t, made, "outrigger_*_amd64.deb")
	root := emptyRoot(t, dependencies(t, deb))
	before := names(t, root)
	began := time.Now()
	dpkg(t, root, "--install", deb)
	if out := dpkgVerify(t, root); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
	interfaces := output(t, "/", "ip", "-o", "link")

	said := inside(t, root, "/usr/bin/outrigger", "demo")
	t.Logf("from dpkg --install to the end of the demo, which is two pods: %v", time.Since(began).Round(100*time.Millisecond))
	if !strings.Contains(said, "All checks passed.") {
		t.Errorf("demo says:\n%s", said)
	}
	if said := inside(t, root, "/usr/bin/kubectl-outrigger", "--version"); !strings.Contains(said, "kubectl outrigger") {
		t.Errorf("the plugin says: %s", said)
	}
	dpkg(t, root, "--remove", "outrigger")

	// The archive finds its parts beside it, wherever it is.
	output(t, "/", "tar", "-xzf", one(t, made, "outrigger_*_linux_amd64.tar.gz"), "-C", filepath.Join(root, "opt"))
	folder := one(t, filepath.Join(root, "opt"), "outrigger_*_linux_amd64")
	there := strings.TrimPrefix(folder, root)
	said = inside(t, root, there+"/outrigger", "run", "oci:"+there+"/demo-image", "--", "echo", "from the archive")
	if !strings.Contains(said, "from the archive") {
		t.Errorf("run says:\n%s", said)
	}
	// The page on the installation says that these are left: the archive and the saved VM.
	for _, left := range []string{folder, filepath.Join(root, "var/cache/outrigger")} {
		if _, err := os.Stat(left); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(left); err != nil {
			t.Fatal(err)
		}
	}

	if d := cmp.Diff(before, names(t, root)); d != "" {
		t.Errorf("left behind (-before +after):\n%s", d)
	}
	if d := cmp.Diff(interfaces, output(t, "/", "ip", "-o", "link")); d != "" {
		t.Errorf("interfaces (-before +after):\n%s", d)
	}
}

// dependencies are the packages that one depends on, and theirs.
func dependencies(t *testing.T, deb string) []string {
	t.Helper()
	args := []string{"depends", "--recurse", "--installed"}
	for _, kind := range []string{"recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"} {
		args = append(args, "--no-"+kind)
	}
	for depend := range strings.SplitSeq(output(t, "/", "dpkg-deb", "--field", deb, "Depends"), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(depend), " ")
		args = append(args, name)
	}
	installed := map[string]bool{}
	for line := range strings.Lines(output(t, "/", "dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n")) {
		name, status, _ := strings.Cut(strings.TrimSpace(line), " ")
		installed[name] = status == "installed"
	}
	var all []string
	for line := range strings.Lines(output(t, "/", "apt-cache", args...)) {
		// Lines that are indented are about the package before them.
		if name := strings.TrimSuffix(line, "\n"); installed[name] {
			all = append(all, name)
		}
	}
	if len(all) < 10 {
		t.Fatalf("QEMU needs only %v", all)
	}
	return all
}

// emptyRoot makes a root folder of packages that this machine has, which dpkg
// there knows.
func emptyRoot(t *testing.T, packages []string) string {
	t.Helper()
	root := filepath.Join(stand.Dir(t), "root")
	for _, folder := range []string{"dev", "proc", "sys", "run", "opt", "root", "tmp", "etc", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "var/cache", "var/log", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"bin", "sbin", "lib", "lib64"} { // Debian's links into /usr
		if target, err := os.Readlink("/" + folder); err == nil {
			err = os.Symlink(target, filepath.Join(root, folder))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for file := range strings.Lines(output(t, "/", "dpkg", append([]string{"--listfiles"}, packages...)...)) {
		file = strings.TrimSpace(file)
		info, err := os.Lstat(file)
		if err != nil || info.IsDir() || documentation.MatchString(file) {
			continue
		}
		// Folders that are links are there, and are in several packages.
		if _, err := os.Lstat(filepath.Join(root, file)); errors.Is(err, fs.ErrNotExist) {
			copyFile(t, file, filepath.Join(root, file))
		}
	}
	status := output(t, "/", "dpkg", append([]string{"--status"}, packages...)...)
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte(status), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

var documentation = regexp.MustCompile(`^/usr/share/(doc|man|info|locale)/`)

// dpkg runs dpkg on a root folder, all dependencies checked.
func dpkg(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.Command("dpkg", append([]string{"--root=" + root}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
}

func dpkgVerify(t *testing.T, root string) string {
	t.Helper()
	out, err := exec.Command("dpkg", "--root="+root, "--verify", "outrigger").CombinedOutput()
	if err != nil {
		t.Errorf("dpkg --verify: %v", err)
	}
	return string(out)
}

// prepare makes the file systems of a machine, in a mount namespace that ends
// with the program. The devices are those that a VM needs, and none of this
// machine's own.
const prepare = `set -eu
root=$1; shift
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 devices "$root/dev"
mkdir "$root/dev/net" "$root/dev/pts" "$root/dev/shm"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mknod -m 666 "$root/dev/net/tun" c 10 200
[ ! -e /dev/kvm ] || mknod -m 666 "$root/dev/kvm" c 10 232
exec chroot "$root" "$@"`

// inside runs a program in the root folder with nothing of this process's
// environment, and returns what it says.
func inside(t *testing.T, root string, program ...string) string {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--mount", "/bin/sh", "-c", prepare, "prepare", root}, program...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", program, err, out)
	}
	return string(out)
}

// names returns the files and folders of a root folder, without dpkg's own.
func names(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !strings.HasPrefix(file, root+"/var/lib/dpkg") && !strings.HasPrefix(file, root+"/var/log") {
			all = append(all, strings.TrimPrefix(file, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
