// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	ebstypes "github.com/aws/aws-sdk-go-v2/service/ebs/types"

	"github.com/outrigger/outrigger/provider"
)

// Snapshots are written in blocks of one size (EBS direct APIs,
// PutSnapshotBlock, x-amz-Data-Length); so many are under way at a time.
const (
	blockSize = 512 << 10
	uploaders = 8
)

var noBlock [blockSize]byte

// upload writes a file into a snapshot. Blocks of zeros need not be written.
type upload struct {
	session  *session
	snapshot string
	from     io.ReaderAt
	size     int64

	next, written atomic.Int32
	tellMu        sync.Mutex
	done          int64
	tell          func(provider.ImageProgress)
}

// run returns how many blocks it has written. The first error ends it.
func (u *upload) run(ctx context.Context) (written int32, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for range uploaders {
		group.Go(func() {
			if err := u.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return u.written.Load(), nil
}

func (u *upload) work(ctx context.Context) error {
	block := make([]byte, blockSize)
	for {
		index := u.next.Add(1) - 1
		at := int64(index) * blockSize
		if at >= u.size || ctx.Err() != nil {
			return nil
		}
		n, err := u.from.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: read the image: %w", provider.ErrInvalidArgument, err)
		}
		clear(block[n:])
		if !bytes.Equal(block, noBlock[:]) {
			if err := u.put(ctx, index, block); err != nil {
				return err
			}
		}
		u.advance(int64(n))
	}
}

func (u *upload) put(ctx context.Context, index int32, block []byte) error {
	sum := sha256.Sum256(block)
	_, err := u.session.blocks.PutSnapshotBlock(ctx, &ebs.PutSnapshotBlockInput{
		SnapshotId: &u.snapshot, BlockIndex: &index, BlockData: bytes.NewReader(block), DataLength: sdk.Int32(blockSize),
		Checksum: sdk.String(base64.StdEncoding.EncodeToString(sum[:])), ChecksumAlgorithm: ebstypes.ChecksumAlgorithmChecksumAlgorithmSha256,
	})
	if err == nil {
		u.written.Add(1)
	}
	return err
}

func (u *upload) advance(n int64) {
	u.tellMu.Lock()
	defer u.tellMu.Unlock()
	u.done += n
	u.tell(provider.ImageProgress{Step: "uploading", Done: u.done, Total: u.size})
}
