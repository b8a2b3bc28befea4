// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip" // half the time of the standard library's
	"github.com/klauspost/compress/zstd"

	"github.com/outrigger/outrigger/internal/timeline/marks"
)

const (
	// ahead is how many layers are downloaded and decompressed while an
	// earlier one is still being unpacked. Layers build on each other, so
	// unpacking itself goes one by one.
	ahead = 2
	// chunk times chunks is what is kept of each of them.
	chunk  = 128 << 10
	chunks = 8
)

// unpackLayers makes dir the image's root file system.
func (p *Puller) unpackLayers(ctx context.Context, src *source, dir string, progress *Progress) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unpacker, err := newUnpacker(dir)
	if err != nil {
		return err
	}
	defer unpacker.close()
	streams, err := p.streams(ctx, src, progress)
	if err != nil {
		return err
	}
	for i, stream := range streams {
		for _, next := range streams[i:min(i+1+ahead, len(streams))] {
			next.begin()
		}
		began := marks.Uptime()
		err := unpacker.layer(stream)
		if err == nil {
			// Past what a tar reader needs: only the end says that all was as the digest says.
			_, err = io.Copy(io.Discard, stream)
		}
		if err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(streams), err)
		}
		p.note(stream, began)
	}
	return unpacker.finish()
}

func (p *Puller) streams(ctx context.Context, src *source, progress *Progress) ([]*stream, error) {
	streams := make([]*stream, 0, len(src.manifest.Layers))
	for i, desc := range src.manifest.Layers {
		encrypted, err := checkLayerType(desc)
		if err != nil {
			return nil, err
		}
		blob, err := src.repo.blob(ctx, p.cfg, desc, progress)
		if err != nil {
			return nil, err
		}
		s := &stream{ctx: ctx, blob: blob, content: blob, name: fmt.Sprintf("%d/%d", i+1, len(src.manifest.Layers))}
		if encrypted {
			if err := p.decrypt(ctx, s, i, src); err != nil {
				return nil, err
			}
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// note notes a layer that was unpacked since began: its download, with the decompression
// beside it, and its unpacking, which goes on at the same time.
func (p *Puller) note(s *stream, began time.Duration) {
	end := marks.Uptime()
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	network, held := s.blob.waited, s.held
	p.cfg.Marks.Add("download-layer", s.began, s.ended, fmt.Sprintf("%s %d KiB, registry %d ms, decompress %d ms",
		s.name, s.blob.desc.Size>>10, ms(network), ms(max(s.ended-s.began-network-held, 0))))
	p.cfg.Marks.Add("unpack-layer", began, end, fmt.Sprintf("%s unpack %d ms, wait for data %d ms",
		s.name, ms(max(end-began-s.starved, 0)), ms(s.starved)))
}

// checkLayerType reports whether a layer is encrypted, by its media type (ocicrypt, spec).
func checkLayerType(desc v1.Descriptor) (encrypted bool, err error) {
	plain, encrypted := strings.CutSuffix(string(desc.MediaType), "+encrypted")
	switch kind := types.MediaType(plain); {
	case kind.IsLayer(), kind == types.OCILayerZStd, desc.MediaType == "":
		return encrypted, nil
	}
	return false, fmt.Errorf("layer %s has type %q; it takes a tar archive (plain, gzip or zstd): is this a container image?", desc.Digest, desc.MediaType)
}

// stream is a layer's tar archive, decompressed by a goroutine of its own a
// little ahead of the reader.
type stream struct {
	ctx  context.Context
	blob *blob
	// content is the blob, or what it is decrypted to. Its io.EOF says that all of it is right.
	content io.Reader
	diffID  v1.Hash // of the archive, if that is compared
	ready   chan []byte
	err     error // of the goroutine; set before ready is closed

	rest []byte
	full []byte // what rest is part of

	name string // which of the image's layers
	// began and ended are of the download, by uptime; held is how long the reader
	// held it up, starved how long the reader waited for it.
	began, ended, held, starved time.Duration
}

var buffers = sync.Pool{New: func() any { return new([chunk]byte) }}

func (s *stream) begin() {
	if s.ready != nil {
		return
	}
	s.ready = make(chan []byte, chunks)
	go func() {
		defer close(s.ready)
		defer s.blob.Close()
		s.began = marks.Uptime()
		s.err = s.decompress()
		s.ended = marks.Uptime()
	}()
}

func (s *stream) decompress() error {
	tar, err := decompressor(s.content)
	if err != nil {
		return err
	}
	defer tar.Close()
	if s.diffID.Hex != "" {
		tar = &compared{ReadCloser: tar, sum: sha256.New(), want: s.diffID}
	}
	for {
		buf := buffers.Get().(*[chunk]byte)
		n, err := fill(tar, buf[:])
		if n > 0 {
			began := time.Now()
			select {
			case s.ready <- buf[:n]:
				s.held += time.Since(began)
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}
		if err == io.EOF {
			// What a decompressor left: only the end is proof of a layer's digest.
			_, err = io.Copy(io.Discard, s.content)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// fill reads until buf is full or there is an error. Unlike io.ReadFull it
// distinguishes a regular end from a broken archive.
func fill(r io.Reader, buf []byte) (int, error) {
	sum := 0
	for sum < len(buf) {
		n, err := r.Read(buf[sum:])
		sum += n
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.full != nil {
			buffers.Put((*[chunk]byte)(s.full[:chunk]))
			s.full = nil
		}
		began := time.Now()
		buf, ok := <-s.ready
		s.starved += time.Since(began)
		if !ok {
			if s.err != nil {
				return 0, s.err
			}
			return 0, io.EOF
		}
		s.rest, s.full = buf, buf
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func decompressor(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		// One goroutine and a window of at most 8 MiB, as RFC 8878 asks
		// decoders to support.
		dec, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return dec.IOReadCloser(), nil
	}
	return io.NopCloser(buffered), nil
}
