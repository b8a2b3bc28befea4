// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// manifestKind trusts the document before the header: some registries answer
// a plain "application/json".
func manifestKind(header string, raw []byte) types.MediaType {
	var doc struct {
		MediaType types.MediaType `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
		Config    json.RawMessage `json:"config"`
	}
	if json.Unmarshal(raw, &doc) == nil {
		switch {
		case doc.MediaType != "":
			return doc.MediaType
		case doc.Manifests != nil:
			return types.OCIImageIndex
		case doc.Config != nil:
			return types.OCIManifestSchema1
		}
	}
	header, _, _ = strings.Cut(header, ";")
	return types.MediaType(header)
}

func (p *Puller) manifestFromIndex(ctx context.Context, repo *repository, ref name.Reference, raw []byte) (document, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return document{}, fmt.Errorf("image index: %w", err)
	}
	desc, err := p.choose(ref, index)
	if err != nil {
		return document{}, err
	}
	doc, err := repo.fetchManifest(ctx, desc.Digest.String())
	if err == nil && !doc.kind.IsImage() {
		err = fmt.Errorf("entry %s of the image index has type %q; it takes an image", doc.digest, doc.kind)
	}
	return doc, err
}

// choose takes the first entry that runs here, of several the one for the oldest
// processors: amd64 before amd64/v4, whose programs others cannot run.
func (p *Puller) choose(ref name.Reference, index *v1.IndexManifest) (v1.Descriptor, error) {
	var has []string
	var runs []v1.Descriptor
	for _, desc := range index.Manifests {
		switch {
		case desc.Platform == nil:
			continue
		case p.runsHere(*desc.Platform):
			runs = append(runs, desc)
		case desc.Platform.OS != "unknown": // attestations beside images
			has = append(has, platformName(*desc.Platform))
		}
	}
	if len(runs) > 0 {
		return slices.MinFunc(runs, func(a, b v1.Descriptor) int {
			return strings.Compare(a.Platform.Variant, b.Platform.Variant)
		}), nil
	}
	if len(index.Manifests) == 1 && index.Manifests[0].Platform == nil {
		return index.Manifests[0], nil
	}
	return v1.Descriptor{}, p.noPlatform(ref, has)
}

func (p *Puller) runsHere(have v1.Platform) bool {
	want := p.cfg.Platform
	return have.OS == want.OS && have.Architecture == want.Architecture && (want.Variant == "" || have.Variant == want.Variant)
}

// checkPlatform checks an image without an index. An empty config (images made by
// hand) passes.
func (p *Puller) checkPlatform(ref name.Reference, cfg *v1.ConfigFile) error {
	have := v1.Platform{OS: cfg.OS, Architecture: cfg.Architecture}
	if have.OS == "" || have.Architecture == "" || p.runsHere(have) {
		return nil
	}
	return p.noPlatform(ref, []string{platformName(have)})
}

func (p *Puller) noPlatform(ref name.Reference, has []string) error {
	slices.Sort(has)
	list := strings.Join(slices.Compact(has), ", ")
	if list == "" {
		list = "no platform at all"
	}
	return fmt.Errorf("image %s has no %s; it has %s", ref.Name(), platformName(p.cfg.Platform), list)
}

func platformName(p v1.Platform) string {
	name := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		name += "/" + p.Variant
	}
	return name
}
