// SPDX-License-Identifier: Apache-2.0

// Package registry opens the container images that `outrigger run` is asked
// for and serves those of this host to the guest that pulls them.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Prefixes of images that lie on this host.
const (
	prefixOCI     = "oci:"
	prefixArchive = "docker-archive:"
)

// Absolute makes the path of an image that lies on this host independent of the
// working directory. References to registries stay as they are.
func Absolute(reference string) (string, error) {
	for _, prefix := range []string{prefixOCI, prefixArchive} {
		path, local := strings.CutPrefix(reference, prefix)
		if !local || path == "" {
			continue
		}
		path, err := filepath.Abs(path)
		return prefix + path, err
	}
	return reference, nil
}

// OnHost reports whether a reference names an image that lies on this host.
func OnHost(reference string) bool {
	return strings.HasPrefix(reference, prefixOCI) || strings.HasPrefix(reference, prefixArchive)
}

// ErrBadReference means that the text is not an image reference.
var ErrBadReference = errors.New("invalid image reference")

// Image is one image for one platform, resolved to its digest.
type Image struct {
	// Name is what the user wrote.
	Name string
	// Reference pins the image by digest for a guest that pulls it from its
	// registry; empty when [Serve] gives it to a guest.
	Reference string
	// Held says that it is of the store.
	Held   bool
	Digest v1.Hash
	Config v1.Config
	image  v1.Image
	ref    name.Reference // of an image of a registry
}

// Options steer Open.
type Options struct {
	// Platform is os/arch[/variant]; empty means linux and this machine's.
	Platform string
	// Store has the images that were pulled to this host.
	Store Store
	Policy
	// Report is told how far the download is that Always may need.
	Report func(v1.Update)
}

// Policy says from where an image of a registry comes.
type Policy string

// Policies. Without one, and with Missing, it is the store, or the registry if it was not pulled.
const (
	Missing Policy = "missing"
	Always  Policy = "always" // pulled to the store first, if the registry has another
	Never   Policy = "never"
	// Guest leaves out the store: the guest asks the registry.
	Guest Policy = "guest"
)

// Open resolves an image reference: one of a registry, oci:DIR[:TAG|@DIGEST]
// or docker-archive:FILE[:TAG]. Layers are not read.
func Open(ctx context.Context, ref string, opts Options) (*Image, error) {
	platform, err := ParsePlatform(opts.Platform)
	if err != nil {
		return nil, err
	}
	img := &Image{Name: ref}
	switch {
	case strings.HasPrefix(ref, prefixOCI):
		img.image, err = openLayout(strings.TrimPrefix(ref, prefixOCI), platform)
	case strings.HasPrefix(ref, prefixArchive):
		img.image, err = openArchive(strings.TrimPrefix(ref, prefixArchive))
	default:
		err = img.open(ctx, platform, opts)
	}
	if err == nil {
		err = img.load(platform)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", ref, err)
	}
	return img, nil
}

// open finds an image of a registry where the policy says.
func (i *Image) open(ctx context.Context, platform v1.Platform, opts Options) (err error) {
	if i.ref, err = name.ParseReference(i.Name); err != nil {
		return fmt.Errorf("%w: %w; want a registry reference, oci:DIR or docker-archive:FILE", ErrBadReference, err)
	}
	if opts.Policy == Always {
		if err = i.ask(ctx, platform); err == nil {
			_, err = opts.Store.keep(ctx, i, opts.Report)
		}
		if err != nil {
			return err
		}
	}
	if opts.Policy != Guest {
		i.image, err = opts.Store.open(i.ref, platform)
		i.Held = err == nil
		if i.Held || opts.Policy == Never || !errors.Is(err, ErrNotPulled) {
			return err
		}
	}
	if err := i.ask(ctx, platform); err != nil {
		return err
	}
	i.Reference, err = i.Pinned(ctx)
	return err
}

// ask opens an image at its registry, and checks that it is for the platform.
func (i *Image) ask(ctx context.Context, platform v1.Platform) error {
	descriptor, err := remote.Get(i.ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	switch {
	case err != nil:
	case descriptor.MediaType.IsIndex():
		var index v1.ImageIndex
		if index, err = descriptor.ImageIndex(); err == nil {
			i.image, err = pick(index, "", platform)
		}
	default:
		i.image, err = descriptor.Image()
	}
	if err != nil {
		return i.advise(err)
	}
	return i.load(platform)
}

// advise says what to do about an error of the image's registry.
func (i *Image) advise(err error) error {
	host := i.ref.Context().RegistryStr()
	var refused *transport.Error
	var unreached *net.OpError
	switch {
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return fmt.Errorf("registry %s has no such image or tag; check both: %w", host, err)
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		return fmt.Errorf("registry %s gives it to nobody without the right credentials, or has no such image: check its name, and log in with `docker login %s`: %w", host, host, err)
	case errors.As(err, &unreached):
		return fmt.Errorf("registry %s cannot be reached from this host: check its name, the network and HTTPS_PROXY; oci:DIR and docker-archive:FILE need no registry: %w", host, err)
	}
	return fmt.Errorf("asking its registry: %w", err)
}

// Loopback reports whether its registry is on this host's loopback interface, where a guest would find itself.
func (i *Image) Loopback() bool {
	host := i.ref.Context().RegistryStr()
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Pinned returns the reference by digest for a guest that asks the registry; empty if that wants credentials, which a
// guest has none of. A program that keeps credentials is asked for them.
func (i *Image) Pinned(ctx context.Context) (string, error) {
	digest, err := i.image.Digest()
	if err != nil {
		return "", err
	}
	if auth, err := authn.Resolve(ctx, authn.DefaultKeychain, i.ref.Context()); err == nil && auth != authn.Anonymous {
		return "", nil
	}
	return i.ref.Context().Name() + "@" + digest.String(), nil
}

// ByDigest returns the reference by digest of an image of a registry; one that has a digest stays.
func (i *Image) ByDigest() (string, error) {
	if i.ref == nil {
		return "", fmt.Errorf("image %s is on this host: want one of a registry, from which a guest pulls it", i.Name)
	}
	if _, has := i.ref.(name.Digest); has {
		return i.ref.Name(), nil
	}
	return i.ref.Context().Name() + "@" + i.Digest.String(), nil
}

// load reads the configuration and checks that it is for the platform.
func (i *Image) load(want v1.Platform) (err error) {
	if i.Digest, err = i.image.Digest(); err != nil {
		return err
	}
	cfg, err := i.image.ConfigFile()
	if err != nil {
		return fmt.Errorf("reading its configuration: %w", err)
	}
	i.Config = cfg.Config
	if cfg.OS != "" && cfg.OS != want.OS || cfg.Architecture != "" && cfg.Architecture != want.Architecture {
		return fmt.Errorf("it is for %s/%s, the pod VM runs %s/%s; pick another image or --platform",
			cfg.OS, cfg.Architecture, want.OS, want.Architecture)
	}
	return nil
}

// ParsePlatform reads os/arch[/variant]; empty means linux on this machine's
// architecture.
func ParsePlatform(text string) (v1.Platform, error) {
	if text == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	p, err := v1.ParsePlatform(text)
	if err != nil || p.OS != "linux" || p.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("platform %q: want linux/ARCH, e.g. linux/%s", text, runtime.GOARCH)
	}
	return *p, nil
}

func openArchive(text string) (v1.Image, error) {
	file, tag, err := splitPath(text, ":")
	if err != nil {
		return nil, err
	}
	var want *name.Tag
	if tag != "" {
		t, err := name.NewTag(tag)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadReference, err)
		}
		want = &t
	}
	img, err := tarball.ImageFromPath(file, want)
	if err != nil {
		return nil, fmt.Errorf("no usable archive of `docker save`: %w", err)
	}
	return img, nil
}

// splitPath parts a path that exists from what follows it. Paths may contain
// separators themselves, so the longest path that exists wins.
func splitPath(text, separators string) (file, rest string, err error) {
	if text == "" {
		return "", "", fmt.Errorf("%w: the path is missing", ErrBadReference)
	}
	for end := len(text); end > 0; end = strings.LastIndexAny(text[:end], separators) {
		if _, err := os.Stat(text[:end]); err == nil {
			return filepath.Clean(text[:end]), strings.TrimLeft(text[end:], separators), nil
		}
	}
	_, err = os.Stat(text)
	return "", "", err
}

// refName is the annotation for tags in an OCI layout (image-spec, annotations.md).
const refName = "org.opencontainers.image.ref.name"

// openLayout finds one image in an OCI layout folder.
func openLayout(text string, platform v1.Platform) (v1.Image, error) {
	dir, want, err := splitPath(text, ":@")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: %w", dir, err)
	}
	if _, err := index.IndexManifest(); err != nil {
		return nil, fmt.Errorf("%s is not an OCI layout: index.json: %w", dir, err)
	}
	return pick(index, want, platform)
}

// pick finds the one image with the tag or digest (empty means any) for the
// platform.
func pick(index v1.ImageIndex, want string, platform v1.Platform) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(slices.Clone(manifest.Manifests), func(d v1.Descriptor) bool {
		return want != "" && d.Annotations[refName] != want && d.Digest.String() != want && d.Digest.Hex != want
	})
	if len(entries) == 0 {
		return nil, fmt.Errorf("no image %q in it; it has: %s", want, describe(manifest.Manifests))
	}
	fitting := slices.DeleteFunc(slices.Clone(entries), func(d v1.Descriptor) bool { return !isImageFor(d, platform) })
	if len(fitting) == 0 {
		return nil, fmt.Errorf("nothing for %s in it; it has: %s", platform, describe(entries))
	}
	fitting = forOldest(fitting)
	if len(fitting) > 1 {
		return nil, fmt.Errorf("several images in it, name one by tag or digest: %s", describe(fitting))
	}
	return open(index, fitting[0], platform)
}

// forOldest leaves the variant of a platform that every processor has: amd64, not
// amd64/v4.
func forOldest(list []v1.Descriptor) []v1.Descriptor {
	variant := func(d v1.Descriptor) string {
		if d.Platform == nil {
			return ""
		}
		return d.Platform.Variant
	}
	least := variant(slices.MinFunc(list, func(a, b v1.Descriptor) int { return strings.Compare(variant(a), variant(b)) }))
	return slices.DeleteFunc(list, func(d v1.Descriptor) bool { return variant(d) != least })
}

func open(index v1.ImageIndex, d v1.Descriptor, platform v1.Platform) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return index.Image(d.Digest)
	}
	inner, err := index.ImageIndex(d.Digest)
	if err != nil {
		return nil, err
	}
	return pick(inner, "", platform)
}

// isImageFor leaves out other platforms, and attestations, which are not images.
func isImageFor(d v1.Descriptor, want v1.Platform) bool {
	if !d.MediaType.IsIndex() && !d.MediaType.IsImage() {
		return false
	}
	return d.Platform == nil || d.Platform.Satisfies(want)
}

func describe(list []v1.Descriptor) string {
	var names []string
	for _, d := range list {
		text := cmp.Or(d.Annotations[refName], d.Digest.String())
		if d.Platform != nil {
			text += " (" + d.Platform.String() + ")"
		}
		names = append(names, text)
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}
