// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
)

// copyChunk is the most data of one CopyFile call, in bytes, as in the shim.
const copyChunk = 1 << 20

// copyDirMode is what the shim sends for missing parents: Go's directory bit
// and 0750.
const copyDirMode = uint32(fs.ModeDir | 0o750)

// CopyFile copies a file, folder or symlink of this host to a path in the
// guest, which must lie beneath /run/kata-containers/shared/containers. A
// symlink given by name is followed, those inside a folder are kept. Sockets,
// pipes and devices are left out.
func (p *Pod) CopyFile(ctx context.Context, host, guest string) error {
	host, err := filepath.EvalSymlinks(host)
	if err != nil {
		return err
	}
	folder, top := filepath.Split(host)
	if info, err := os.Lstat(host); err == nil && info.IsDir() {
		folder, top = host, "."
	}
	// Others may change the folder meanwhile: no link that they make leads out of
	// it.
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	batch := &copyBatch{pod: p}
	err = fs.WalkDir(root.FS(), top, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		if err := batch.entry(ctx, root, name, path.Join(guest, filepath.ToSlash(rel))); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(folder, name), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return batch.flush(ctx)
}

// copyBatch is what the next call carries: a call for each file would be most of the time of many small ones.
type copyBatch struct {
	pod   *Pod
	files []*agent.CopyFileRequest
	size  int
}

// add sends the batch when it is as large as a ConfigMap, and a chunk more, can be; a message has 4 MiB at most (ttrpc).
func (b *copyBatch) add(ctx context.Context, req *agent.CopyFileRequest) error {
	b.files, b.size = append(b.files, req), b.size+proto.Size(req)
	if b.size < 2*copyChunk {
		return nil
	}
	return b.flush(ctx)
}

func (b *copyBatch) flush(ctx context.Context) error {
	files := b.files
	b.files, b.size = nil, 0
	if len(files) > 1 && !b.pod.singly.Load() {
		_, err := ask(ctx, b.pod, "", CallTimeout, b.pod.guest.CopyFiles, &guest.CopyFilesRequest{Files: files})
		if status.Code(err) != codes.Unimplemented {
			return err
		}
		b.pod.singly.Store(true)
	}
	for _, file := range files {
		if err := b.pod.copyCall(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

func (b *copyBatch) entry(ctx context.Context, root *os.Root, name, guest string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	req := &agent.CopyFileRequest{Path: guest, FileMode: st.Mode, DirMode: copyDirMode, Uid: int32(st.Uid), Gid: int32(st.Gid)}
	switch {
	case info.IsDir():
		return b.add(ctx, req)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		req.Data = []byte(target)
		return b.add(ctx, req)
	case info.Mode().IsRegular():
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have been replaced by a pipe
		if err != nil {
			return err
		}
		defer f.Close()
		if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
			return errors.Join(errors.New("it was replaced while it was copied"), err)
		}
		return b.stream(ctx, req, f, info.Size())
	}
	b.pod.client.logger().Warn("not copied into the pod: not a file, folder or symlink", "path", filepath.Join(root.Name(), name))
	return nil
}

// stream sends exactly size bytes: the guest moves the file into place when it has that many.
func (b *copyBatch) stream(ctx context.Context, req *agent.CopyFileRequest, r io.Reader, size int64) error {
	req.FileSize = size
	for {
		req.Data = make([]byte, min(size-req.Offset, copyChunk))
		if _, err := io.ReadFull(r, req.Data); err != nil {
			return errors.Join(errors.New("it became shorter while it was copied"), err)
		}
		if err := b.add(ctx, req); err != nil {
			return err
		}
		next := req.Offset + int64(len(req.Data))
		if next >= size {
			return nil
		}
		req = &agent.CopyFileRequest{Path: req.Path, FileSize: size, FileMode: req.FileMode, DirMode: req.DirMode, Uid: req.Uid, Gid: req.Gid, Offset: next}
	}
}

// CopyData writes a file of root's with the given permissions into the guest.
func (p *Pod) CopyData(ctx context.Context, guest string, perm uint32, data []byte) error {
	req := &agent.CopyFileRequest{Path: guest, FileMode: syscall.S_IFREG | perm, DirMode: copyDirMode}
	batch := &copyBatch{pod: p}
	return errors.Join(batch.stream(ctx, req, bytes.NewReader(data), int64(len(data))), batch.flush(ctx))
}

// ReadCopied returns the end of a file in the guest that CopyFile made there:
// the last 4096 bytes of it at most. Agents other than ours cannot; known is
// false then.
func (p *Pod) ReadCopied(ctx context.Context, path string) (data []byte, known bool, err error) {
	resp, err := ask(ctx, p, "", CallTimeout, p.guest.ReadCopied, &guest.ReadCopiedRequest{Path: path})
	if status.Code(err) == codes.Unimplemented {
		return nil, false, nil
	}
	data = resp.GetData()
	return data[max(0, len(data)-mostWords):], true, err
}

func (p *Pod) copyCall(ctx context.Context, req *agent.CopyFileRequest) error {
	_, err := ask(ctx, p, "", CallTimeout, p.agent.CopyFile, req)
	return err
}
