// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// copying returns an agent that can copy files, and the folder they go to.
func copying(t *testing.T) (*Agent, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to change owners; run: sudo make test")
	}
	a := &Agent{cfg: Config{Root: t.TempDir()}}
	a.copies = newCopier(a.cfg.Root)
	return a, filepath.Join(a.cfg.Root, "shared/containers")
}

const goDirMode = 0x800001E8 // Go's os.ModeDir | 0750, as shims send it

func copyFile(t *testing.T, a *Agent, req *agent.CopyFileRequest) error {
	t.Helper()
	req.Path, req.DirMode = sharedFolder+"/"+req.Path, goDirMode
	_, err := a.CopyFile(t.Context(), req)
	return err
}

func mustCopy(t *testing.T, a *Agent, req *agent.CopyFileRequest) {
	t.Helper()
	if err := copyFile(t, a, req); err != nil {
		t.Fatal(err)
	}
}

func TestCopyFileInPieces(t *testing.T) {
	a, dir := copying(t)
	piece := func(offset int64, data string) *agent.CopyFileRequest {
		return &agent.CopyFileRequest{Path: "c/sub/f", FileSize: 6, FileMode: 0o100640, Uid: 5, Gid: 6, Offset: offset, Data: []byte(data)}
	}
	mustCopy(t, a, piece(0, "abc"))
	if _, err := os.Lstat(filepath.Join(dir, "c/sub/f")); !os.IsNotExist(err) {
		t.Errorf("an incomplete file can be seen: %v", err)
	}
	if err := copyFile(t, a, piece(4, "ef")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a piece was left out: %v", err)
	}
	mustCopy(t, a, piece(3, "def"))
	got, err := os.ReadFile(filepath.Join(dir, "c/sub/f"))
	if err != nil || string(got) != "abcdef" {
		t.Errorf("%q, %v", got, err)
	}
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "c/sub/f"), &st); st.Mode != unix.S_IFREG|0o640 || st.Uid != 5 || st.Gid != 6 {
		t.Errorf("mode %o, owner %d:%d", st.Mode, st.Uid, st.Gid)
	}
	if unix.Stat(filepath.Join(dir, "c/sub"), &st); st.Mode&0o7777 != 0o750 {
		t.Errorf("folder on the way has mode %o", st.Mode)
	}
	// A new first piece starts again; an empty file is one call.
	mustCopy(t, a, piece(0, "xyz"))
	mustCopy(t, a, &agent.CopyFileRequest{Path: "c/sub/f", FileMode: 0o100600})
	if got, _ := os.ReadFile(filepath.Join(dir, "c/sub/f")); len(got) != 0 {
		t.Errorf("%q", got)
	}
	if left, _ := os.ReadDir(filepath.Join(a.cfg.Root, "shared/incomplete")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCopyFileReplacesWhateverIsThere(t *testing.T) {
	file := &agent.CopyFileRequest{FileMode: 0o100600, FileSize: 1, Data: []byte("x")}
	link := &agent.CopyFileRequest{FileMode: 0o120777, Data: []byte("target")}
	folder := &agent.CopyFileRequest{FileMode: 0o40700}
	for from, first := range map[string]*agent.CopyFileRequest{"file": file, "link": link, "folder": folder} {
		for to, second := range map[string]*agent.CopyFileRequest{"file": file, "link": link, "folder": folder} {
			t.Run(from+" to "+to, func(t *testing.T) {
				a, dir := copying(t)
				for _, req := range []*agent.CopyFileRequest{first, second} {
					mustCopy(t, a, &agent.CopyFileRequest{Path: "at", FileMode: req.FileMode, FileSize: req.FileSize, Data: req.Data})
				}
				var st unix.Stat_t
				if err := unix.Lstat(filepath.Join(dir, "at"), &st); err != nil || st.Mode&unix.S_IFMT != second.FileMode&unix.S_IFMT {
					t.Errorf("mode %o, %v", st.Mode, err)
				}
			})
		}
	}
}

// Of many files each is where its path leads when its turn has come.
func TestCopyFilesInOrder(t *testing.T) {
	a, dir := copying(t)
	file := func(path, data string) *agent.CopyFileRequest {
		return &agent.CopyFileRequest{Path: path, FileMode: 0o100640, FileSize: int64(len(data)), Data: []byte(data), Uid: 5, Gid: 6}
	}
	link := func(path, to string) *agent.CopyFileRequest {
		return &agent.CopyFileRequest{Path: path, FileMode: 0o120777, Data: []byte(to), Uid: 7, Gid: 8}
	}
	folder := func(path string) *agent.CopyFileRequest {
		return &agent.CopyFileRequest{Path: path, FileMode: 0o40750}
	}
	files := []*agent.CopyFileRequest{
		folder("v"), folder("v/1"), file("v/1/f", "first"), link("v/data", "1"), file("v/data/g", "through a link"), file("v/1/f", "again"),
		folder("v/2"), link("v/data", "2"), file("v/data/f", "second"), link("v/f", "data/f"), folder("v/data"), file("v/data/h", "no link"),
	}
	for _, req := range files {
		req.Path, req.DirMode = sharedFolder+"/"+req.Path, goDirMode
	}
	if _, err := a.CopyFiles(t.Context(), &guest.CopyFilesRequest{Files: files}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"v/1/f": "again", "v/1/g": "through a link", "v/2/f": "second", "v/data/h": "no link"} {
		var st unix.Stat_t
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err = errors.Join(err, unix.Lstat(filepath.Join(dir, path), &st)); err != nil || string(got) != want || st.Mode != 0o100640 || st.Uid != 5 || st.Gid != 6 {
			t.Errorf("%s: %q, %v, mode %o of %d:%d", path, got, err, st.Mode, st.Uid, st.Gid)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "v/f"), &st); err != nil || st.Uid != 7 || st.Gid != 8 {
		t.Errorf("a link of %d:%d, %v", st.Uid, st.Gid, err)
	}
	files = []*agent.CopyFileRequest{file(sharedFolder+"/before", ""), file("/etc/passwd", ""), file(sharedFolder+"/after", "")}
	if _, err := a.CopyFiles(t.Context(), &guest.CopyFilesRequest{Files: files}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a file elsewhere: %v", err)
	}
	if names, _ := filepath.Glob(dir + "/*"); !slices.Equal(names, []string{dir + "/before", dir + "/v"}) {
		t.Errorf("%q", names)
	}
	if left, _ := os.ReadDir(a.copies.parts); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCopyFileKeepsAFoldersContent(t *testing.T) {
	a, dir := copying(t)
	mustCopy(t, a, &agent.CopyFileRequest{Path: "d/f", FileMode: 0o100600})
	mustCopy(t, a, &agent.CopyFileRequest{Path: "d", FileMode: 0o41777})
	if _, err := os.Stat(filepath.Join(dir, "d/f")); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(filepath.Join(dir, "d")); info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestCopyFileStaysInTheSharedFolder(t *testing.T) {
	a, dir := copying(t)
	outside := filepath.Join(a.cfg.Root, "outside")
	if err := os.MkdirAll(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, a, &agent.CopyFileRequest{Path: "abs", FileMode: 0o120777, Data: []byte(outside)})
	mustCopy(t, a, &agent.CopyFileRequest{Path: "rel", FileMode: 0o120777, Data: []byte("../../outside")})
	for _, path := range []string{"abs/f", "rel/f", "rel/new/f"} {
		if err := copyFile(t, a, &agent.CopyFileRequest{Path: path, FileMode: 0o100600}); err == nil || !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Over the link itself is inside.
	mustCopy(t, a, &agent.CopyFileRequest{Path: "abs", FileMode: 0o100600, FileSize: 1, Data: []byte("x")})
	if got, err := os.ReadFile(filepath.Join(dir, "abs")); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"/etc/passwd", sharedFolder, sharedFolder + "/", sharedFolder + "/../x", sharedFolder + "//x", "relative", sharedFolder + "x/y"} {
		_, err := a.CopyFile(t.Context(), &agent.CopyFileRequest{Path: path, FileMode: 0o100600})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", path, err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("outside: %v", left)
	}
}

func TestCopyFileRefusesNonsense(t *testing.T) {
	a, _ := copying(t)
	for name, req := range map[string]*agent.CopyFileRequest{
		"too long":      {FileMode: 0o100600, FileSize: 1, Data: []byte("xy")},
		"negative":      {FileMode: 0o100600, FileSize: 1, Offset: -1},
		"overflow":      {FileMode: 0o100600, FileSize: 1<<63 - 1, Offset: 1<<63 - 1, Data: []byte("xy")},
		"no beginning":  {FileMode: 0o100600, FileSize: 9, Offset: 4, Data: []byte("x")},
		"device":        {FileMode: 0o020600},
		"negative size": {FileMode: 0o100600, FileSize: -5},
	} {
		req.Path = "f"
		if err := copyFile(t, a, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
