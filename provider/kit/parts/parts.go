// SPDX-License-Identifier: Apache-2.0

// Package parts uploads images and tells how far it is.
package parts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/outrigger/outrigger/provider"
)

// Upload is that of a file in parts of one size. Parts of zeros are left out.
type Upload struct {
	From io.ReaderAt
	// Size is the file's, Part that of each part except for the last, in bytes.
	Size, Part int64
	// AtOnce is how many parts are under way at a time.
	AtOnce int
	// Put sends the part that begins at at. Behind the last one its buffer has room up to Part.
	Put func(ctx context.Context, at int64, part []byte) error
	// Tell is told how much is done.
	Tell func(provider.ImageProgress)

	mu         sync.Mutex
	next, done int64
}

// Run uploads the file. The first error ends it.
func (u *Upload) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range u.AtOnce {
		group.Go(func() {
			if err := u.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func (u *Upload) work(ctx context.Context) error {
	buffer, zeros := make([]byte, u.Part), make([]byte, u.Part)
	for {
		at := u.take()
		if at >= u.Size || ctx.Err() != nil {
			return nil
		}
		part := buffer[:min(u.Part, u.Size-at)]
		if n, err := u.From.ReadAt(part, at); n < len(part) || err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: read the image: %w", provider.ErrInvalidArgument, err)
		}
		if !bytes.Equal(part, zeros[:len(part)]) {
			if err := u.Put(ctx, at, part); err != nil {
				return err
			}
		}
		u.advance(int64(len(part)))
	}
}

func (u *Upload) take() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next += u.Part
	return u.next - u.Part
}

func (u *Upload) advance(n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done += n
	u.Tell(provider.ImageProgress{Step: "uploading", Done: u.done, Total: u.Size})
}

// Reader tells how much of an upload has been read.
type Reader struct {
	From  io.Reader
	Total int64
	Tell  func(provider.ImageProgress)
	done  int64
}

// Read implements io.Reader.
func (r *Reader) Read(into []byte) (int, error) {
	n, err := r.From.Read(into)
	r.done += int64(n)
	if n > 0 {
		r.Tell(provider.ImageProgress{Step: "uploading", Done: r.done, Total: r.Total})
	}
	return n, err
}

// Seek implements io.Seeker, for an upload that begins again.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	seeker, ok := r.From.(io.Seeker)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	at, err := seeker.Seek(offset, whence)
	r.done = at
	return at, err
}
