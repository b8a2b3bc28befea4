// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyPiece is how much is copied between two looks at the context.
const copyPiece = 64 << 20

// CloneFile makes a file the same as another, at one time. It reports whether the file system can do that, which then shares what
// neither changes.
func CloneFile(source, target *os.File) bool {
	return unix.IoctlFileClone(int(target.Fd()), int(source.Fd())) == nil
}

// CopySparse copies a file onto one that has nothing but zeros, without its holes.
func CopySparse(ctx context.Context, source, target *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := target.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		begin, err := source.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no more data
			return nil
		}
		if err != nil {
			return err
		}
		end, err := source.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		at = min(end, begin+copyPiece)
		if err := copyRange(source, target, begin, at); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func copyRange(source, target *os.File, begin, end int64) error {
	if _, err := source.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	if _, err := target.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(target, source, end-begin)
	return err
}
