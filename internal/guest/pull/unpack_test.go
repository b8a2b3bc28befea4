// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unpacked applies layers, each a list of files, to a new folder.
func unpacked(t *testing.T, layers ...[]file) (string, error) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	u, err := newUnpacker(root)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, layer := range layers {
		if err := u.layer(bytes.NewReader(archive(t, layer...))); err != nil {
			return root, err
		}
	}
	return root, u.finish()
}

func wantUnpacked(t *testing.T, layers [][]file, want ...string) {
	t.Helper()
	root, err := unpacked(t, layers...)
	if err != nil {
		t.Fatal(err)
	}
	wantTree(t, root, want...)
}

func TestWhiteouts(t *testing.T) {
	lower := []file{dir("d/"), reg("d/a", "1"), reg("d/b", "1"), dir("d/sub/"), reg("d/sub/x", "1"), reg("keep", "1")}
	cases := map[string]struct {
		upper []file
		want  []string
	}{
		"file":               {[]file{reg("d/.wh.a", "")}, []string{"d/", "d/b=1", "d/sub/", "d/sub/x=1", "keep=1"}},
		"folder":             {[]file{reg(".wh.d", "")}, []string{"keep=1"}},
		"opaque":             {[]file{dir("d/"), reg("d/.wh..wh..opq", ""), reg("d/new", "2")}, []string{"d/", "d/new=2", "keep=1"}},
		"opaque at the end":  {[]file{dir("d/"), reg("d/new", "2"), reg("d/sub/y", "2"), reg("d/.wh..wh..opq", "")}, []string{"d/", "d/new=2", "d/sub/", "d/sub/y=2", "keep=1"}},
		"removed and remade": {[]file{reg("d/a", "2"), reg("d/.wh.a", "")}, []string{"d/", "d/a=2", "d/b=1", "d/sub/", "d/sub/x=1", "keep=1"}},
		"of nothing":         {[]file{reg("d/.wh.zz", ""), reg("q/.wh.x", "")}, append([]string{}, "d/", "d/a=1", "d/b=1", "d/sub/", "d/sub/x=1", "keep=1", "q/")},
		"bookkeeping":        {[]file{reg(".wh..wh.plnk", "")}, []string{"d/", "d/a=1", "d/b=1", "d/sub/", "d/sub/x=1", "keep=1"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { wantUnpacked(t, [][]file{lower, c.upper}, c.want...) })
	}
}

func TestUpperLayersReplace(t *testing.T) {
	wantUnpacked(t, [][]file{
		{dir("was-dir/"), reg("was-dir/x", "1"), reg("was-file", "1"), sym("was-link", "was-file"), dir("merged/"), reg("merged/a", "1")},
		{reg("was-dir", "2"), dir("was-file/"), reg("was-link", "2"), dir("merged/"), reg("merged/b", "2")},
	}, "merged/", "merged/a=1", "merged/b=2", "was-dir=2", "was-file/", "was-link=2")
}

func TestHardLinkedFileIsReplacedAlone(t *testing.T) {
	wantUnpacked(t, [][]file{{reg("a", "1"), hard("b", "a")}, {reg("b", "2")}}, "a=1", "b=2")
}

func TestAbsoluteLinksStayInTheImage(t *testing.T) {
	wantUnpacked(t, [][]file{
		{dir("run/"), dir("var/"), sym("var/run", "/run"), sym("var/lock", "/run/lock")},
		{reg("var/run/pid", "1"), reg("var/lock/l", "1")},
	}, "run/", "run/lock/", "run/lock/l=1", "run/pid=1", "var/", "var/lock -> /run/lock", "var/run -> /run")
}

// TestNothingEscapes tries to write, link and remove outside the folder.
func TestNothingEscapes(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	secret := filepath.Join(outside, "secret")
	up := strings.Repeat("../", 20)
	for name, layers := range map[string][][]file{
		"dots":              {{reg(up+secret, "evil")}},
		"absolute":          {{reg(secret, "evil")}},
		"link then file":    {{sym("l", outside), reg("l/secret", "evil")}},
		"relative link":     {{sym("l", up+outside), reg("l/secret", "evil")}},
		"link over layers":  {{sym("l", outside)}, {reg("l/secret", "evil")}},
		"file through link": {{sym("l", secret), reg("l", "evil")}},
		"hard link":         {{hard("h", secret)}},
		"hard link by link": {{sym("l", outside), hard("h", "l/secret")}},
		"whiteout":          {{sym("l", outside)}, {reg("l/.wh.secret", "")}},
		"opaque":            {{sym("l", outside)}, {reg("l/.wh..wh..opq", "")}},
		"folder over link":  {{sym("l", outside)}, {dir("l/"), reg("l/secret", "evil")}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(outside, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(secret, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := unpacked(t, layers...)
			wantTree(t, outside, "secret=kept")
			for _, got := range tree(t, root) {
				if strings.HasSuffix(got, "=kept") {
					t.Errorf("%s leads outside (unpack: %v)", got, err)
				}
			}
		})
	}
}

func TestWhiteoutOfTheFolderItselfIsRefused(t *testing.T) {
	for _, name := range []string{".wh.", ".wh...", ".wh.."} {
		root, err := unpacked(t, []file{reg("a", "1")}, []file{reg(name, "")})
		if err == nil {
			t.Errorf("%q was accepted", name)
		}
		wantTree(t, root, "a=1")
	}
}

func TestMetadata(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change owners; run: sudo make test")
	}
	when := time.Unix(1_000_000_000, 123_000_000)
	suid := file{Header: tar.Header{Name: "bin/su", Mode: 0o4755, Uid: 12, Gid: 34, ModTime: when, Format: tar.FormatPAX,
		PAXRecords: map[string]string{xattrPrefix + "security.capability": "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			xattrPrefix + "trusted.overlay.opaque": "y"}}}
	folder := file{Header: tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 5, ModTime: when, Format: tar.FormatPAX}}
	fifo := file{Header: tar.Header{Name: "bin/fifo", Typeflag: tar.TypeFifo, Mode: 0o640, ModTime: when, Format: tar.FormatPAX}}
	null := file{Header: tar.Header{Name: "bin/null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3, ModTime: when, Format: tar.FormatPAX}}
	root, err := unpacked(t, []file{folder, suid, fifo, null})
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(copied, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(t.Context(), root, copied); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{root, copied} {
		wantStat(t, filepath.Join(root, "bin"), unix.S_IFDIR|0o1777, 5, 0, when, 0)
		wantStat(t, filepath.Join(root, "bin/su"), unix.S_IFREG|0o4755, 12, 34, when, 0)
		wantStat(t, filepath.Join(root, "bin/fifo"), unix.S_IFIFO|0o640, 0, 0, when, 0)
		wantStat(t, filepath.Join(root, "bin/null"), unix.S_IFCHR|0o666, 0, 0, when, unix.Mkdev(1, 3))
		var value [64]byte
		if n, err := unix.Lgetxattr(filepath.Join(root, "bin/su"), "security.capability", value[:]); err != nil || n != 20 {
			t.Errorf("capability of %s: %d bytes, %v", root, n, err)
		}
		if _, err := unix.Lgetxattr(filepath.Join(root, "bin/su"), "trusted.overlay.opaque", value[:]); err != unix.ENODATA {
			t.Errorf("an overlay mark came through: %v", err)
		}
	}
}

func wantStat(t *testing.T, path string, mode, uid, gid uint32, mtime time.Time, rdev uint64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Error(err)
		return
	}
	if st.Mode != mode || st.Uid != uid || st.Gid != gid || st.Rdev != rdev || st.Mtim.Nano() != mtime.UnixNano() {
		t.Errorf("%s: mode %o owner %d:%d device %d time %d", path, st.Mode, st.Uid, st.Gid, st.Rdev, st.Mtim.Nano())
	}
}

func TestCopyKeepsHardLinks(t *testing.T) {
	root, err := unpacked(t, []file{reg("a", "1"), hard("b", "a"), sym("l", "/a")})
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := copyTree(t.Context(), root, copied); err != nil {
		t.Fatal(err)
	}
	wantTree(t, copied, "a=1", "b=1", "l -> /a")
	var a, b unix.Stat_t
	if unix.Stat(filepath.Join(copied, "a"), &a) != nil || unix.Stat(filepath.Join(copied, "b"), &b) != nil || a.Ino != b.Ino {
		t.Error("a and b are no longer one file")
	}
}

// TestHolesStayHoles: what is nothing but zeros takes no room.
func TestHolesStayHoles(t *testing.T) {
	content := strings.Repeat("\x00", 3<<20) + "x" + strings.Repeat("\x00", 5<<20)
	root, err := unpacked(t, []file{reg("zeros", strings.Repeat("\x00", 8<<20)), reg("mixed", content), reg("little", "\x00\x00")})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"zeros": strings.Repeat("\x00", 8<<20), "mixed": content, "little": "\x00\x00"} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(got) != want {
			t.Errorf("%s has %d bytes, want %d as they were (%v)", name, len(got), len(want), err)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, name), &st); err != nil || st.Blocks*512 > 64<<10 {
			t.Errorf("%s takes %d KiB (%v)", name, st.Blocks/2, err)
		}
	}
}

func TestFilledParts(t *testing.T) {
	page := func(c string) string { return strings.Repeat(c, hole) }
	for data, want := range map[string]string{
		"":                                   "",
		page("\x00"):                         "",
		page("a"):                            "0-4096 ",
		page("a") + page("\x00") + page("b"): "0-4096 8192-12288 ",
		page("\x00") + page("b") + "c":       "4096-8193 ",
		"\x00":                               "",
	} {
		got := ""
		for from, to := range filled([]byte(data)) {
			got += fmt.Sprintf("%d-%d ", from, to)
		}
		if got != want {
			t.Errorf("%d bytes: %q, want %q", len(data), got, want)
		}
	}
}

func TestWhatDoesNotFitIsSaid(t *testing.T) {
	for name, spoil := range map[string]func(*unpacker){
		"room":  func(u *unpacker) { u.room = 10 },
		"files": func(u *unpacker) { u.entries = 1 },
	} {
		u, err := newUnpacker(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer u.close()
		spoil(u)
		if err := u.layer(bytes.NewReader(archive(t, reg("a", "12345"), reg("b", "12345678")))); !errors.Is(err, errNoRoom) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
