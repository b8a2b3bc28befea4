// SPDX-License-Identifier: Apache-2.0

package beneath

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, links Links) (*Dir, string, string) {
	t.Helper()
	top := t.TempDir()
	inside, outside := filepath.Join(top, "inside"), filepath.Join(top, "outside")
	for _, dir := range []string{inside, outside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(inside, links)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, inside, outside
}

func link(t *testing.T, target, at string) {
	t.Helper()
	if err := os.Symlink(target, at); err != nil {
		t.Fatal(err)
	}
}

func TestRefuseStopsLinksThatLeave(t *testing.T) {
	d, inside, outside := open(t, Refuse)
	link(t, outside, filepath.Join(inside, "absolute"))
	link(t, "../outside", filepath.Join(inside, "relative"))
	for _, rel := range []string{"absolute", "relative", "../outside"} {
		if fd, err := d.OpenDir(rel); !errors.Is(err, unix.EXDEV) {
			t.Errorf("OpenDir(%q) = %d, %v, want EXDEV", rel, fd, err)
		}
	}
	if _, err := d.MkdirAll("relative/new", 0o755); err == nil {
		t.Error("MkdirAll through a link that leaves the folder succeeded")
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside has %v", entries)
	}
}

func TestChrootKeepsAbsoluteLinksInside(t *testing.T) {
	d, inside, outside := open(t, Chroot)
	link(t, "/run", filepath.Join(inside, "var-run"))
	link(t, "../../../outside", filepath.Join(inside, "up"))
	for _, rel := range []string{"var-run/lock", "up/deep"} {
		fd, err := d.MkdirAll(rel, 0o755)
		if err != nil {
			t.Fatalf("MkdirAll(%q): %v", rel, err)
		}
		unix.Close(fd)
	}
	for _, want := range []string{"run/lock", "outside/deep"} {
		if _, err := os.Stat(filepath.Join(inside, want)); err != nil {
			t.Error(err)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside has %v", entries)
	}
}

func TestMkdirAllGivesUpOnLinkLoops(t *testing.T) {
	d, inside, _ := open(t, Chroot)
	link(t, "/b", filepath.Join(inside, "a"))
	link(t, "/a", filepath.Join(inside, "b"))
	if _, err := d.MkdirAll("a/x", 0o755); !errors.Is(err, unix.ELOOP) {
		t.Errorf("MkdirAll in a loop of links: %v, want ELOOP", err)
	}
}

// TestDeepPathsAreNotWalkedAgainAndAgain: with links in front each walk from the
// top is long, so that one for each part of a deep path took minutes.
func TestDeepPathsAreNotWalkedAgainAndAgain(t *testing.T) {
	d, inside, _ := open(t, Chroot)
	link(t, "nowhere/yet", filepath.Join(inside, "dangling"))
	for _, rel := range []string{strings.Repeat("d/", 1500) + "end", "dangling/" + strings.Repeat("e/", 1500) + "end"} {
		before := d.walks.Load()
		fd, err := d.MkdirAll(rel, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		if got := d.walks.Load() - before; got > 40 {
			t.Errorf("%d walks for %d parts", got, strings.Count(rel, "/")+1)
		}
		fd, err = d.OpenDir(rel)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	if _, err := os.Stat(filepath.Join(inside, "nowhere/yet/e")); err != nil {
		t.Error(err)
	}
}

func TestRemoveAllDoesNotFollowLinks(t *testing.T) {
	d, inside, outside := open(t, Refuse)
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(inside, "tree/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, outside, filepath.Join(inside, "tree/sub/link"))
	for range 2 {
		if err := RemoveAll(d.fd, "tree"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(inside, "tree")); !os.IsNotExist(err) {
		t.Errorf("tree is still there: %v", err)
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{"": ".", "/": ".", "./a/": "a", "../../etc": "etc", "a/../../b": "b", "/a//b": "a/b"} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}
