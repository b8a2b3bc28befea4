// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// sharedFolder is the folder to which callers copy files. Containers mount parts of
// it.
const sharedFolder = requestRoot + "/shared/containers"

// copier writes the files that CopyFile receives. A file comes in several chunks and
// appears only when it is complete. Until then it is in the folder parts, which no
// container mounts, on the same file system.
type copier struct {
	mu            sync.Mutex
	shared, parts string
}

func newCopier(root string) *copier {
	return &copier{shared: filepath.Join(root, "shared/containers"), parts: filepath.Join(root, "shared/incomplete")}
}

// CopyFile makes a folder or a symbolic link, or writes a chunk of a file. Nothing can
// be written outside the shared folder.
func (a *Agent) CopyFile(ctx context.Context, req *agent.CopyFileRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, a.copyAll(ctx, []*agent.CopyFileRequest{req})
}

// CopyFiles does what as many calls of CopyFile do.
func (a *Agent) CopyFiles(ctx context.Context, req *guest.CopyFilesRequest) (*guest.CopyFilesResponse, error) {
	return &guest.CopyFilesResponse{}, a.copyAll(ctx, req.GetFiles())
}

// makeMissing makes a folder in the shared one, unless there is something.
func (c *copier) makeMissing(rel string) error {
	if err := os.MkdirAll(c.shared, 0o711); err != nil {
		return err
	}
	shared, err := beneath.Open(c.shared, beneath.Refuse)
	if err != nil {
		return err
	}
	defer shared.Close()
	fd, err := shared.Open(rel, unix.O_PATH, 0)
	if errors.Is(err, os.ErrNotExist) {
		fd, err = shared.MkdirAll(rel, 0o755)
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func (a *Agent) copyAll(ctx context.Context, files []*agent.CopyFileRequest) error {
	if err := a.unsealFiles(ctx, files); err != nil {
		return err
	}
	return a.copies.copyAll(files)
}

func (c *copier) copyAll(files []*agent.CopyFileRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := errors.Join(os.MkdirAll(c.shared, 0o711), os.MkdirAll(c.parts, 0o711))
	if err != nil {
		return fail(codes.Internal, err)
	}
	shared, err := beneath.Open(c.shared, beneath.Refuse)
	if err != nil {
		return fail(codes.Internal, err)
	}
	defer shared.Close()
	w := &writing{shared: shared, parts: c.parts, open: -1, fresh: map[string]bool{}}
	defer w.forget()
	for _, req := range files {
		rel, ok := strings.CutPrefix(req.GetPath(), sharedFolder+"/")
		if !ok || rel == "" || path.Clean(req.GetPath()) != req.GetPath() {
			return status.Errorf(codes.InvalidArgument, "copy to %q: it takes a path below %s without . and ..", req.GetPath(), sharedFolder)
		}
		if err := w.copy(rel, req); err != nil {
			return fail(codes.Internal, fmt.Errorf("copy to %s: %w", req.GetPath(), err))
		}
	}
	return nil
}

// writing is one call. Of many files most are in the folder of the one before, which stays open.
type writing struct {
	shared *beneath.Dir
	parts  string
	folder string
	open   int // -1: none
	// fresh are folders that this call has made: nothing refers to them yet.
	fresh map[string]bool
}

// replaced is for what may have changed where paths lead.
func (w *writing) replaced() {
	w.forget()
	clear(w.fresh)
}

func (w *writing) forget() {
	if w.open >= 0 {
		unix.Close(w.open)
	}
	w.open = -1
}

func (w *writing) copy(rel string, req *agent.CopyFileRequest) error {
	if folder := path.Dir(rel); w.open < 0 || folder != w.folder {
		w.forget()
		// dir_mode is a Go fs.FileMode: bits above the permissions differ from Unix.
		parent, err := w.shared.MkdirAll(folder, req.GetDirMode()&0o777)
		if err != nil {
			return err
		}
		w.folder, w.open = folder, parent
	}
	target := dirEntry{writing: w, rel: rel, dir: w.open, base: path.Base(rel)}
	switch req.GetFileMode() & unix.S_IFMT {
	case unix.S_IFDIR:
		return target.makeDir(req)
	case unix.S_IFLNK:
		return target.makeLink(req)
	case unix.S_IFREG, 0:
		return target.writeFile(req)
	}
	return status.Errorf(codes.InvalidArgument, "mode %#o is not that of a file, folder or symbolic link", req.GetFileMode())
}

// dirEntry is a name in an open folder.
type dirEntry struct {
	*writing
	rel  string
	dir  int
	base string
}

// part returns where it is until it is complete.
func (p dirEntry) part() string {
	return filepath.Join(p.parts, fmt.Sprintf("%x", sha256.Sum256([]byte(p.rel))))
}

// makeDir makes a folder, or keeps an existing one with its content.
func (p dirEntry) makeDir(req *agent.CopyFileRequest) error {
	err := unix.Mkdirat(p.dir, p.base, 0o700)
	p.fresh[p.rel] = err == nil
	if err == unix.EEXIST && !p.isDir() {
		defer p.replaced()
		if err = unix.Unlinkat(p.dir, p.base, 0); err == nil {
			err = unix.Mkdirat(p.dir, p.base, 0o700)
		}
	}
	if err != nil && err != unix.EEXIST {
		return os.NewSyscallError("mkdirat", err)
	}
	fd, err := unix.Openat(p.dir, p.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	return setOwner(fd, req)
}

func (p dirEntry) isDir() bool {
	var st unix.Stat_t
	return unix.Fstatat(p.dir, p.base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func setOwner(fd int, req *agent.CopyFileRequest) error {
	if err := unix.Fchown(fd, int(req.GetUid()), int(req.GetGid())); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, req.GetFileMode()&0o7777))
}

// makeLink replaces a link in one step, which is how Kubernetes switches a
// volume to new content.
func (p dirEntry) makeLink(req *agent.CopyFileRequest) error {
	err := p.linkAt(p.dir, p.base, req)
	if err != unix.EEXIST {
		return os.NewSyscallError("symlinkat", err)
	}
	defer p.replaced()
	part := p.part()
	os.Remove(part)
	if err := p.linkAt(unix.AT_FDCWD, part, req); err != nil {
		return errors.Join(os.NewSyscallError("symlinkat", err), os.Remove(part))
	}
	return p.replace(part)
}

func (p dirEntry) linkAt(dir int, name string, req *agent.CopyFileRequest) error {
	if err := unix.Symlinkat(string(req.GetData()), dir, name); err != nil {
		return err
	}
	if req.GetUid() == 0 && req.GetGid() == 0 { // this process
		return nil
	}
	return unix.Fchownat(dir, name, int(req.GetUid()), int(req.GetGid()), unix.AT_SYMLINK_NOFOLLOW)
}

// replace moves part to the entry, over whatever exists there.
func (p dirEntry) replace(part string) error {
	err := unix.Renameat(unix.AT_FDCWD, part, p.dir, p.base)
	if err == unix.EISDIR {
		defer p.replaced()
		if err := beneath.RemoveAll(p.dir, p.base); err != nil {
			return err
		}
		err = unix.Renameat(unix.AT_FDCWD, part, p.dir, p.base)
	}
	if err != nil {
		return errors.Join(os.NewSyscallError("renameat", err), os.Remove(part))
	}
	return nil
}

func (p dirEntry) writeFile(req *agent.CopyFileRequest) error {
	size, offset, end := req.GetFileSize(), req.GetOffset(), req.GetOffset()+int64(len(req.GetData()))
	if size < 0 || offset < 0 || end > size || end < offset {
		return status.Errorf(codes.InvalidArgument, "%d bytes at %d do not fit into a file of %d", len(req.GetData()), offset, size)
	}
	whole := end == size
	if offset == 0 && whole && p.fresh[p.folder] { // as kubelet writes a volume
		switch err := writeAt(p.dir, p.base, unix.O_EXCL, req, whole); {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EEXIST):
			unix.Unlinkat(p.dir, p.base, 0)
			return err
		}
	}
	part := p.part()
	if offset == 0 {
		unix.Unlink(part)
	} else {
		switch info, err := os.Lstat(part); {
		case errors.Is(err, os.ErrNotExist):
			return status.Errorf(codes.InvalidArgument, "a piece at %d of a file whose beginning never came", offset)
		case err != nil:
			return err
		case info.Size() != offset:
			return status.Errorf(codes.InvalidArgument, "a piece at %d after %d bytes: pieces have to come in order", offset, info.Size())
		}
	}
	if err := writeAt(unix.AT_FDCWD, part, 0, req, whole); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			os.Remove(part) // frees space for other files
		}
		return err
	}
	if !whole {
		return nil
	}
	return p.replace(part)
}

// writeAt does without os.File, which costs as many system calls again.
func writeAt(dir int, name string, flags int, req *agent.CopyFileRequest, last bool) error {
	fd, err := unix.Openat(dir, name, flags|unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	for data, at := req.GetData(), req.GetOffset(); len(data) > 0; {
		n, err := unix.Pwrite(fd, data, at)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("pwrite", err)
		}
		data, at = data[max(n, 0):], at+int64(max(n, 0))
	}
	if !last {
		return nil
	}
	return setOwner(fd, req)
}

// maxTerminationMessage is how many bytes of a termination message the kubelet reads.
const maxTerminationMessage = 4096

// ReadCopied returns the end of a file directly in the shared folder. Deeper files,
// such as those of volumes and root file systems, stay in the VM.
func (a *Agent) ReadCopied(_ context.Context, req *guest.ReadCopiedRequest) (*guest.ReadCopiedResponse, error) {
	name, ok := strings.CutPrefix(req.GetPath(), sharedFolder+"/")
	if !ok || name == "" || name == ".." || strings.Contains(name, "/") {
		return nil, status.Errorf(codes.InvalidArgument, "read %q: it takes a file right in %s", req.GetPath(), sharedFolder)
	}
	data, err := readEnd(filepath.Join(a.copies.shared, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, status.Errorf(codes.NotFound, "there is no file %s", req.GetPath())
	case err != nil:
		return nil, fail(codes.Internal, err)
	}
	return &guest.ReadCopiedResponse{Data: data}, nil
}

// readEnd returns the last maxTerminationMessage bytes of a regular file.
func readEnd(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, status.Errorf(codes.InvalidArgument, "%s is not a file, but %v", filepath.Base(path), info.Mode().Type())
	}
	return io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-maxTerminationMessage), maxTerminationMessage))
}
