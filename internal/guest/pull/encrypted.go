// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// decrypt makes a stream that of the plain layer, the image's i-th. Its archive must be the one of the
// image's config, which has the digests of plain layers (image-spec, config.md, rootfs.diff_ids): so a
// signature of the manifest is one of what was encrypted.
func (p *Puller) decrypt(ctx context.Context, s *stream, i int, src *source) (err error) {
	digest, ids := s.blob.desc.Digest, src.config.RootFS.DiffIDs
	switch {
	case p.cfg.Decrypt == nil:
		return fmt.Errorf("layer %s is encrypted; this agent cannot decrypt images", digest)
	case len(ids) != len(src.manifest.Layers) || ids[i].Algorithm != "sha256":
		return fmt.Errorf("layer %s is encrypted, and the image's config has no SHA-256 diff_id of it", digest)
	}
	s.diffID = ids[i]
	s.content, err = p.cfg.Decrypt(ctx, s.blob.desc, s.blob)
	return err
}

// compared is an archive, whose end is io.EOF only if its digest is right.
type compared struct {
	io.ReadCloser
	sum  hash.Hash
	want v1.Hash
}

// Read implements io.Reader.
func (c *compared) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sum.Write(p[:n])
	if err != io.EOF {
		return n, err
	}
	if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.want.Hex {
		err = fmt.Errorf("%w: the plain layer is sha256:%s, and the image's config has diff_id %s", errDigest, got, c.want)
	}
	return n, err
}
