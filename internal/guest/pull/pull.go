// SPDX-License-Identifier: Apache-2.0

// Package pull brings container images into the pod VM: it downloads and
// unpacks an image once and gives every container a root file system of its
// own on top of it.
//
// Layers are unpacked while they are downloaded; nothing but the unpacked
// files is kept. Memory does not depend on the size of an image.
package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// DefaultAuthFile is where process-user-data puts registry credentials.
const DefaultAuthFile = "/run/peerpod/auth.json"

// Config is the configuration of a [Puller].
type Config struct {
	// Dir is the folder of unpacked images and of containers' writable layers. It is
	// made if missing. Overlays need a file system that can be an upper layer (ext4,
	// tmpfs); on others images are copied.
	Dir string
	// AuthFile is a Docker config.json, read at each pull. If it does not exist,
	// pulls are anonymous.
	AuthFile string
	// InsecureRegistries ("host" for any port, or "host:port") may be reached over
	// plain HTTP if they do not serve HTTPS. All others need HTTPS, whatever their
	// address.
	InsecureRegistries []string
	// InsecureFile lists more of them, separated by white space. It is read at each
	// use and may be missing.
	InsecureFile string
	// Mirrors maps a registry to its mirrors, which are tried first.
	Mirrors map[string][]string
	// Platform is what images must run on; the default is this machine.
	Platform v1.Platform
	// Marks is where steps of the pod's start are noted.
	Marks marks.Marks
	// Policy is asked about each image before a layer of it is fetched, also if the same image is
	// there already: the manifest that it has seen is the one that is unpacked. Nil accepts all.
	Policy func(context.Context, *Candidate) error
	// Decrypt makes the plain layer of an encrypted one. It fails at once if it has no key, and what it
	// returns ends with io.EOF only if all that was read is what was encrypted. If it is nil, images
	// with encrypted layers are errors.
	Decrypt func(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error)
	// Pulled is called with each image that Pull returns, before it does. If it fails, so does Pull.
	Pulled func(reference, digest string) error
	// Backoff is the pause after a first failure; it doubles with each
	// further one. The default is 500 ms.
	Backoff time.Duration
	Log     *slog.Logger
}

// Puller pulls images and keeps them until Forget. Its methods may be called
// from many goroutines; the same image is pulled only once.
type Puller struct {
	cfg       Config
	transport http.RoundTripper

	unpacking keylock.Locks // by digest
	copied    sync.Once
}

// Image is an unpacked image.
type Image struct {
	// Name is the requested reference in full.
	Name string
	// Digest is the digest of the manifest for this platform.
	Digest v1.Hash
	// Config is the image's: user, command, environment.
	Config v1.Config
	// RootFS is the folder of its files. Containers share it: never write there.
	RootFS string
}

// New checks cfg and makes its folder.
func New(cfg Config) (*Puller, error) {
	if cfg.Dir == "" {
		return nil, errors.New("pull: no folder for images")
	}
	if cfg.Platform.OS == "" {
		cfg.Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Backoff = cmp.Or(cfg.Backoff, 500*time.Millisecond)
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "images"), 0o700); err != nil {
		return nil, fmt.Errorf("folder for images: %w", err)
	}
	// The partial images of a killed process.
	left, _ := filepath.Glob(filepath.Join(cfg.Dir, "images", "*"+partSuffix))
	for _, part := range left {
		os.RemoveAll(part)
	}
	p := &Puller{cfg: cfg}
	p.transport = plainHTTP{next: newTransport(), allowed: p.isInsecure}
	return p, nil
}

const partSuffix = ".part"

// Dialer returns what dials from this VM, which may be a restored one.
func Dialer() *net.Dialer {
	return &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Resolver: resolver}
}

func newTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = Dialer().DialContext
	t.ResponseHeaderTimeout = 30 * time.Second
	t.TLSHandshakeTimeout = 20 * time.Second
	t.MaxIdleConnsPerHost = 4
	t.DisableCompression = true // layers are compressed already; digests are of the bytes sent
	return t
}

// Pull makes image ref available and returns it. Network failures are retried
// until ctx's deadline is near, or until nothing has moved for several tries.
// progress may be nil.
func (p *Puller) Pull(ctx context.Context, ref string, progress *Progress) (*Image, error) {
	if progress == nil {
		progress = NewProgress()
	}
	defer progress.finish()
	parsed, err := p.parse(ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := leaveTime(ctx)
	defer cancel()
	img, err := p.pull(ctx, parsed, progress)
	if err == nil && p.cfg.Pulled != nil {
		err = p.cfg.Pulled(img.Name, img.Digest.String())
	}
	if err != nil {
		return nil, fmt.Errorf("pull image %s: %w", ref, err)
	}
	return img, nil
}

// leaveTime returns a context that ends a little before the caller's deadline, so
// that the caller gets the cause instead of a bare "deadline exceeded".
func leaveTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(2*time.Second, time.Until(deadline)/10)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

func (p *Puller) parse(ref string) (name.Reference, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("image name %q: %w", ref, err)
	}
	if p.isInsecure(parsed.Context().RegistryStr()) {
		return name.ParseReference(parsed.Name(), name.Insecure)
	}
	return parsed, nil
}

func (p *Puller) pull(ctx context.Context, ref name.Reference, progress *Progress) (*Image, error) {
	began := marks.Uptime()
	src, err := p.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	p.cfg.Marks.Note("resolve-image", began, ref.Name())
	if err := p.admit(ctx, ref, src); err != nil {
		return nil, err
	}
	img := &Image{
		Name: ref.Name(), Digest: src.digest, Config: src.config.Config,
		// Unlike the config's digest the manifest's covers the compressed layers, which are verified.
		RootFS: filepath.Join(p.cfg.Dir, "images", src.digest.Hex),
	}
	done, err := p.unpacking.Take(ctx, src.digest.Hex)
	if err != nil {
		return nil, fmt.Errorf("wait for the same image in another container: %w", err)
	}
	defer done()
	if _, err := os.Stat(img.RootFS); err == nil {
		p.cfg.Log.Info("image is already present", "image", img.Name, "digest", img.Digest.String())
		return img, nil
	}
	return img, p.download(ctx, src, img, progress)
}

func (p *Puller) download(ctx context.Context, src *source, img *Image, progress *Progress) error {
	part := img.RootFS + partSuffix
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	progress.start(src.size(), p.cfg.Log.With("image", img.Name))
	begin := time.Now()
	if err := p.unpackLayers(ctx, src, part, progress); err != nil {
		os.RemoveAll(part)
		return p.explainFull(err)
	}
	if err := os.Rename(part, img.RootFS); err != nil {
		return err
	}
	p.cfg.Log.Info("image pulled", "image", img.Name, "digest", img.Digest.String(),
		"bytes", src.size(), "layers", len(src.manifest.Layers), "seconds", time.Since(begin).Seconds())
	return nil
}
