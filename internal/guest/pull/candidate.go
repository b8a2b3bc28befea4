// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Candidate is an image whose manifest is known, and of which no layer is fetched yet.
type Candidate struct {
	// Reference is the one that was asked for, in full.
	Reference name.Reference
	// Digests are those of the manifest, and of the index that has it if Reference names one.
	Digests []v1.Hash

	cfg  Config
	repo *repository
}

// Manifest returns another manifest of the repository, or of the mirror that has the image, by tag or
// digest. Its error is a *transport.Error if the registry says that there is none.
func (c *Candidate) Manifest(ctx context.Context, id string) ([]byte, error) {
	return c.fetch(ctx, "manifest", func() (document, error) { return c.repo.fetchManifest(ctx, id) })
}

// Blob returns a blob of the same repository, of at most 4 MiB, with that digest.
func (c *Candidate) Blob(ctx context.Context, digest string) ([]byte, error) {
	return c.fetch(ctx, "blob", func() (document, error) { return c.repo.fetch(ctx, "blob", "blobs", digest, nil) })
}

func (c *Candidate) fetch(ctx context.Context, what string, get func() (document, error)) ([]byte, error) {
	doc, err := retry(ctx, c.cfg, what, get)
	return doc.raw, err
}

// admit asks the policy for images.
func (p *Puller) admit(ctx context.Context, ref name.Reference, src *source) error {
	if p.cfg.Policy == nil {
		return nil
	}
	return p.cfg.Policy(ctx, &Candidate{Reference: ref, Digests: src.digests, cfg: p.cfg, repo: src.repo})
}
