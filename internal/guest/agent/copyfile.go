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
func (a *Agent) CopyFile(_ context.Context, req *agent.CopyFileRequest) (*emptypb.Empty, error) {
	rel, ok := strings.CutPrefix(req.GetPath(), sharedFolder+"/")
	if !ok || rel == "" || path.Clean(req.GetPath()) != req.GetPath() {
		return nil, status.Errorf(codes.InvalidArgument, "copy to %q: it takes a path below %s without . and ..", req.GetPath(), sharedFolder)
	}
	if err := a.copies.copy(rel, req); err != nil {
		return nil, fail(codes.Internal, fmt.Errorf("copy to %s: %w", req.GetPath(), err))
	}
	return &emptypb.Empty{}, nil
}

func (c *copier) copy(rel string, req *agent.CopyFileRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dir := range []string{c.shared, c.parts} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	shared, err := beneath.Open(c.shared, beneath.Refuse)
	if err != nil {
		return err
	}
	defer shared.Close()
	// dir_mode is a Go fs.FileMode: bits above the permissions differ from Unix.
	parent, err := shared.MkdirAll(path.Dir(rel), req.GetDirMode()&0o777)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	target := dirEntry{dir: parent, base: path.Base(rel)}
	part := filepath.Join(c.parts, fmt.Sprintf("%x", sha256.Sum256([]byte(rel))))
	switch req.GetFileMode() & unix.S_IFMT {
	case unix.S_IFDIR:
		return target.makeDir(req)
	case unix.S_IFLNK:
		return target.makeLink(part, req)
	case unix.S_IFREG, 0:
		return target.writeFile(part, req)
	}
	return status.Errorf(codes.InvalidArgument, "mode %#o is not that of a file, folder or symbolic link", req.GetFileMode())
}

// dirEntry is a name in an open folder.
type dirEntry struct {
	dir  int
	base string
}

// makeDir makes a folder, or keeps an existing one with its content.
func (p dirEntry) makeDir(req *agent.CopyFileRequest) error {
	err := unix.Mkdirat(p.dir, p.base, 0o700)
	if err == unix.EEXIST && !p.isDir() {
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
func (p dirEntry) makeLink(part string, req *agent.CopyFileRequest) error {
	os.Remove(part)
	if err := os.Symlink(string(req.GetData()), part); err != nil {
		return err
	}
	if err := os.Lchown(part, int(req.GetUid()), int(req.GetGid())); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return p.replace(part)
}

// replace moves part to the entry, over whatever exists there.
func (p dirEntry) replace(part string) error {
	if p.isDir() {
		if err := beneath.RemoveAll(p.dir, p.base); err != nil {
			return err
		}
	}
	if err := unix.Renameat(unix.AT_FDCWD, part, p.dir, p.base); err != nil {
		return errors.Join(os.NewSyscallError("renameat", err), os.Remove(part))
	}
	return nil
}

func (p dirEntry) writeFile(part string, req *agent.CopyFileRequest) error {
	size, offset, end := req.GetFileSize(), req.GetOffset(), req.GetOffset()+int64(len(req.GetData()))
	if size < 0 || offset < 0 || end > size || end < offset {
		return status.Errorf(codes.InvalidArgument, "%d bytes at %d do not fit into a file of %d", len(req.GetData()), offset, size)
	}
	info, err := os.Lstat(part)
	switch {
	case offset == 0:
		os.Remove(part)
	case errors.Is(err, os.ErrNotExist):
		return status.Errorf(codes.InvalidArgument, "a piece at %d of a file whose beginning never came", offset)
	case err != nil:
		return err
	case info.Size() != offset:
		return status.Errorf(codes.InvalidArgument, "a piece at %d after %d bytes: pieces have to come in order", offset, info.Size())
	}
	if err := appendPart(part, req, end == size); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			os.Remove(part) // frees space for other files
		}
		return err
	}
	if end < size {
		return nil
	}
	return p.replace(part)
}

func appendPart(part string, req *agent.CopyFileRequest, last bool) error {
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(req.GetData(), req.GetOffset()); err != nil {
		return err
	}
	if last {
		if err := setOwner(int(file.Fd()), req); err != nil {
			return err
		}
	}
	return file.Close()
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
