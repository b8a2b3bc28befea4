// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxManifest bounds manifests, indexes and configs, which are held in
// memory; registries accept no more than 4 MiB either.
const maxManifest = 4 << 20

var acceptedManifests = strings.Join([]string{
	string(types.OCIImageIndex), string(types.DockerManifestList),
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}, ",")

// source is where one image's parts come from.
type source struct {
	repo     *repository
	digest   v1.Hash
	digests  []v1.Hash // with that of the index it is from
	manifest *v1.Manifest
	config   *v1.ConfigFile
}

// size returns how many bytes will be downloaded.
func (s *source) size() int64 {
	var sum int64
	for _, layer := range s.manifest.Layers {
		sum += layer.Size
	}
	return sum
}

// repository is an authenticated connection to one repository of a registry.
type repository struct {
	repo   name.Repository
	client *http.Client
}

func (p *Puller) open(ctx context.Context, repo name.Repository) (*repository, error) {
	auth, err := credentials(p.cfg.AuthFile, repo)
	if err != nil {
		return nil, err
	}
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, p.transport, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &repository{repo: repo, client: &http.Client{Transport: rt, CheckRedirect: checkRedirect}}, nil
}

// checkRedirect lets a registry send us to its storage, but not from the
// outside to link-local addresses, where clouds keep instance metadata.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	if ip := net.ParseIP(req.URL.Hostname()); ip != nil && ip.IsLinkLocalUnicast() {
		return fmt.Errorf("refused a redirect from %s to link-local %s", via[0].URL.Host, ip)
	}
	return nil
}

// resolve finds the manifest and config for our platform, at a mirror if one
// has them.
func (p *Puller) resolve(ctx context.Context, ref name.Reference) (*source, error) {
	var errs []error
	for _, candidate := range p.candidates(ref) {
		src, err := retry(ctx, p.cfg, "manifest", func() (*source, error) { return p.resolveAt(ctx, candidate) })
		if err == nil {
			return src, nil
		}
		if candidate != ref {
			p.cfg.Log.Warn("mirror failed", "mirror", candidate.Context().RegistryStr(), "err", err)
			err = fmt.Errorf("mirror %s: %w", candidate.Context().RegistryStr(), err)
		}
		errs = append(errs, err)
	}
	return nil, errs[len(errs)-1]
}

// candidates returns ref at each mirror of its registry, and last ref itself.
func (p *Puller) candidates(ref name.Reference) []name.Reference {
	var all []name.Reference
	registry := ref.Context().RegistryStr()
	for _, mirror := range p.cfg.Mirrors[registry] {
		moved, err := p.parse(mirror + strings.TrimPrefix(ref.Name(), registry))
		if err != nil {
			p.cfg.Log.Warn("mirror ignored", "mirror", mirror, "err", err)
			continue
		}
		all = append(all, moved)
	}
	return append(all, ref)
}

func (p *Puller) resolveAt(ctx context.Context, ref name.Reference) (*source, error) {
	repo, err := p.open(ctx, ref.Context())
	if err != nil {
		return nil, err
	}
	doc, err := repo.fetchManifest(ctx, ref.Identifier())
	if err != nil {
		return nil, err
	}
	digests := []v1.Hash{doc.digest}
	if doc.kind.IsIndex() {
		if doc, err = p.manifestFromIndex(ctx, repo, ref, doc.raw); err != nil {
			return nil, err
		}
	}
	if doc.digest != digests[0] {
		digests = []v1.Hash{doc.digest, digests[0]}
	}
	src := &source{repo: repo, digest: doc.digest, digests: digests}
	if src.manifest, err = v1.ParseManifest(bytes.NewReader(doc.raw)); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", doc.digest, err)
	}
	config, err := repo.fetch(ctx, "image config", "blobs", src.manifest.Config.Digest.String(), nil)
	if err != nil {
		return nil, err
	}
	if src.config, err = v1.ParseConfigFile(bytes.NewReader(config.raw)); err != nil {
		return nil, err
	}
	return src, p.checkPlatform(ref, src.config)
}

// document is what a registry has beside layers: manifest, index or config.
type document struct {
	raw    []byte
	digest v1.Hash
	kind   types.MediaType
}

// fetchManifest returns a manifest or an index.
func (r *repository) fetchManifest(ctx context.Context, id string) (document, error) {
	doc, err := r.fetch(ctx, "manifest", "manifests", id, http.Header{"Accept": {acceptedManifests}})
	if err != nil {
		return document{}, err
	}
	doc.kind = manifestKind(string(doc.kind), doc.raw)
	if !doc.kind.IsIndex() && !doc.kind.IsImage() {
		return document{}, fmt.Errorf("manifest %s has type %q; it takes an OCI or Docker schema 2 image", id, doc.kind)
	}
	return doc, nil
}

// fetch returns a document, which matches id unless that is a tag, and says what it is in errors.
func (r *repository) fetch(ctx context.Context, what, path, id string, header http.Header) (document, error) {
	resp, err := r.get(ctx, path, id, header)
	if err != nil {
		return document{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err == nil && len(raw) > maxManifest {
		err = fmt.Errorf("is larger than %d bytes", maxManifest)
	}
	digest, _, _ := v1.SHA256(bytes.NewReader(raw)) // reading from memory does not fail
	if isTag := !strings.Contains(id, ":"); err == nil && !isTag && id != digest.String() {
		err = fmt.Errorf("%w: got %s", errDigest, digest)
	}
	if err != nil {
		return document{}, fmt.Errorf("%s %s: %w", what, id, err)
	}
	return document{raw, digest, types.MediaType(resp.Header.Get("Content-Type"))}, nil
}

func (r *repository) get(ctx context.Context, kind, id string, header http.Header) (*http.Response, error) {
	u := url.URL{
		Scheme: r.repo.Scheme(), Host: r.repo.RegistryStr(),
		Path: fmt.Sprintf("/v2/%s/%s/%s", r.repo.RepositoryStr(), kind, id),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}
