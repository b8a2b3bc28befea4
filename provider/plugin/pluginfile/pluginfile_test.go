// SPDX-License-Identifier: Apache-2.0

package pluginfile_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := pluginfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func sumOf(text string) *pluginfile.Sum {
	sum := pluginfile.Sum(sha256.Sum256([]byte(text)))
	return &sum
}

// overwrite changes the file in place, as somebody with a writable descriptor
// can after every check.
func overwrite(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("evil"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestSealedBytesAreTheHashedOnes(t *testing.T) {
	path := write(t, "p", "#!/bin/sh")
	sealed, err := pluginfile.Seal(open(t, path), sumOf("#!/bin/sh"))
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	overwrite(t, path)
	text, err := io.ReadAll(io.NewSectionReader(sealed, 0, 100))
	if err != nil || string(text) != "#!/bin/sh" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := sealed.WriteAt([]byte("evil"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing to the sealed copy: %v", err)
	}
	if err := sealed.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("cutting the sealed copy: %v", err)
	}
}

func TestPrivateCopy(t *testing.T) {
	path, temp := write(t, "p.so", "library"), t.TempDir()
	private, err := pluginfile.Copy(open(t, path), sumOf("library"), temp)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path)
	if text, err := os.ReadFile(private.Path); string(text) != "library" || filepath.Base(private.Path) != "p.so" {
		t.Errorf("%s: %q, %v", private.Path, text, err)
	}
	info, err := os.Stat(filepath.Dir(private.Path))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", info.Mode(), err)
	}
	if err := private.Remove(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWrongHash(t *testing.T) {
	path, temp := write(t, "p", "#!/bin/sh"), t.TempDir()
	want := sumOf("other")
	_, sealed := pluginfile.Seal(open(t, path), want)
	_, copied := pluginfile.Copy(open(t, path), want, temp)
	for _, err := range []error{sealed, copied} {
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(fmt.Sprint(err), want.String()) || !strings.Contains(fmt.Sprint(err), sumOf("#!/bin/sh").String()) {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestParseSum(t *testing.T) {
	digits := sumOf("x").String()
	for text, good := range map[string]bool{
		digits: true, strings.ToUpper(digits): true, " " + digits + "\n": true,
		"": false, digits[1:]: false, digits + "00": false, "sha256:" + digits: false, digits + "  p.so": false, "z" + digits[1:]: false,
	} {
		sum, err := pluginfile.ParseSum(text)
		if (err == nil) != good || good && sum != *sumOf("x") {
			t.Errorf("%q: %v, %v", text, sum, err)
		}
	}
}

func TestSpecialFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o700); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/does/not/exist", dangling); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is not a regular file", dangling: "there is no", "/dev/null/x": "is not a folder"} {
		if _, err := pluginfile.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestLinkIntoOpenFolder: the folder that counts is that of the file itself.
func TestLinkIntoOpenFolder(t *testing.T) {
	path := write(t, "p", "#!/bin/sh")
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "p")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := pluginfile.Open(link); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("taken through the link: %v", err)
	}
}

func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything: run the test as another user")
	}
	path := write(t, "p", "#!/bin/sh")
	if err := os.Chmod(path, 0o100); err != nil {
		t.Fatal(err)
	}
	if _, err := pluginfile.Open(path); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), "may not read") {
		t.Error(err)
	}
}

func TestAbandonedFoldersGo(t *testing.T) {
	temp := t.TempDir()
	old := func(path string) {
		t.Helper()
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	inUse, err := pluginfile.NewFolder(temp)
	if err != nil {
		t.Fatal(err)
	}
	old(inUse.Path)
	abandoned, fresh := filepath.Join(temp, "outrigger-plugin-1"), filepath.Join(temp, "outrigger-plugin-2")
	for _, path := range []string{abandoned, fresh} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(abandoned, "plugin.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old(abandoned)
	mine, err := pluginfile.NewFolder(temp)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{inUse.Path: true, abandoned: false, fresh: true, mine.Path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", path, err == nil, want)
		}
	}
	for _, f := range []*pluginfile.Folder{inUse, mine} {
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
}
