// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// stalled is how long a download may make no progress before it is resumed on a
// new connection.
const stalled = 30 * time.Second

// blob reads one blob. A broken connection is replaced by one for the rest of
// the bytes. Its end is io.EOF only if size and digest are right.
type blob struct {
	ctx      context.Context
	cfg      Config
	repo     *repository
	desc     v1.Descriptor
	progress *Progress

	body   io.ReadCloser
	cancel context.CancelFunc
	watch  *time.Timer
	sum    hash.Hash
	offset int64
	tries  int
	// waited is how long Read waited for the registry.
	waited time.Duration
}

func (r *repository) blob(ctx context.Context, cfg Config, desc v1.Descriptor, progress *Progress) (*blob, error) {
	if desc.Digest.Algorithm != "sha256" {
		return nil, fmt.Errorf("layer %s: only sha256 digests can be verified", desc.Digest)
	}
	return &blob{ctx: ctx, cfg: cfg, repo: r, desc: desc, progress: progress, sum: sha256.New()}, nil
}

// Read implements io.Reader.
func (b *blob) Read(p []byte) (int, error) {
	for {
		if b.offset == b.desc.Size {
			if got := hex.EncodeToString(b.sum.Sum(nil)); got != b.desc.Digest.Hex {
				return 0, fmt.Errorf("layer %s: %w: got sha256:%s", b.desc.Digest, errDigest, got)
			}
			return 0, io.EOF
		}
		n, err := b.readSome(p[:min(int64(len(p)), b.desc.Size-b.offset)])
		switch {
		case n > 0:
			b.tries = 0
			return n, nil
		case err != nil:
			if err := b.nextAttempt(err); err != nil {
				return 0, err
			}
		}
	}
}

func (b *blob) readSome(p []byte) (int, error) {
	began := time.Now()
	defer func() { b.waited += time.Since(began) }()
	if b.body == nil {
		if err := b.connect(); err != nil {
			return 0, err
		}
	}
	b.watch.Reset(stalled)
	n, err := b.body.Read(p)
	b.watch.Stop()
	b.sum.Write(p[:n])
	b.offset += int64(n)
	if n > 0 {
		b.progress.add(int64(n))
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// connect asks for what is missing. A server that cannot resume sends all, of
// which the first part is thrown away.
func (b *blob) connect() error {
	ctx, cancel := context.WithCancel(b.ctx)
	header := http.Header{}
	if b.offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", b.offset))
	}
	resp, err := b.repo.get(ctx, "blobs", b.desc.Digest.String(), header)
	if err != nil {
		cancel()
		return err
	}
	b.body, b.cancel, b.watch = resp.Body, cancel, time.AfterFunc(stalled, cancel)
	if resp.StatusCode == http.StatusOK && b.offset > 0 {
		_, err = io.CopyN(io.Discard, b.body, b.offset)
	}
	return err
}

// nextAttempt prepares another try after err, or returns why there is none.
func (b *blob) nextAttempt(err error) error {
	b.Close()
	b.tries++
	// A stalled connection was cancelled by our own timer.
	ours := errors.Is(err, context.Canceled) && b.ctx.Err() == nil
	if b.tries >= maxTries || b.ctx.Err() != nil || !(ours || temporary(err)) {
		return fmt.Errorf("layer %s at byte %d of %d: %w", b.desc.Digest, b.offset, b.desc.Size, explain(err))
	}
	pause := b.cfg.Backoff << (b.tries - 1)
	b.cfg.Log.Warn("download was interrupted, resuming", "layer", b.desc.Digest.String(), "offset", b.offset, "pause", pause, "err", err)
	if poll.Sleep(b.ctx, pause) != nil {
		return fmt.Errorf("layer %s: %w", b.desc.Digest, err)
	}
	return nil
}

// Close ends the download.
func (b *blob) Close() error {
	if b.body == nil {
		return nil
	}
	b.watch.Stop()
	b.cancel()
	err := b.body.Close()
	b.body = nil
	return err
}
