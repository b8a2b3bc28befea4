// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// ErrNotPulled means that an image is not in the store.
var ErrNotPulled = errors.New("it was not pulled to this host")

// Store keeps images of registries on this host, in one OCI layout. Its index names only images whose blobs are all
// there. One process at a time changes it, by a lock; readers need none: they hold all files of an image open.
type Store struct {
	// Dir is its folder, which is made when it is missing; empty is a store without images.
	Dir string
	// Wait is called when another process changes the store, before it is waited for.
	Wait func()
}

// Stored is an image in a store.
type Stored struct {
	// Name is the whole reference, such as docker.io/library/busybox:1.
	Name     string    `json:"name"`
	Digest   string    `json:"digest"`
	Platform string    `json:"platform"`
	Size     int64     `json:"size"` // of its blobs, in bytes
	Created  time.Time `json:"created"`
}

func (s Store) blob(hex string) string { return filepath.Join(s.Dir, "blobs", "sha256", hex) }

// read returns the index, which later changes do not affect, and what it names.
func (s Store) read() (v1.ImageIndex, []v1.Descriptor, error) {
	index, err := layout.ImageIndexFromPath(s.Dir)
	if s.Dir == "" || errors.Is(err, fs.ErrNotExist) {
		return empty.Index, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, fmt.Errorf("index.json of %s: %w", s.Dir, err)
	}
	return index, manifest.Manifests, nil
}

// change lets one process at a time edit what the index names, and then frees blobs that no image needs.
func (s Store) change(ctx context.Context, edit func([]v1.Descriptor) ([]v1.Descriptor, error)) error {
	if s.Dir == "" {
		return errors.New("no folder for images of this host: set HOME, or name one with --image-cache")
	}
	path := filepath.Join(s.Dir, "lock")
	lock, err := statefile.TryAcquire(path)
	if lock == nil && err == nil {
		s.Wait()
		lock, err = statefile.Acquire(ctx, path)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	_, list, err := s.read()
	if slices.ContainsFunc(list, func(d v1.Descriptor) bool { return !d.MediaType.IsImage() }) {
		err = fmt.Errorf("%s has more than images of single platforms, so it is not outrigger's: name another --image-cache", s.Dir)
	}
	if err == nil {
		list, err = edit(list)
	}
	if err != nil {
		return err
	}
	return errors.Join( // layout would write index.json in place
		statefile.Write(filepath.Join(s.Dir, "oci-layout"), map[string]string{"imageLayoutVersion": "1.0.0"}), // image-spec, image-layout.md
		statefile.Write(filepath.Join(s.Dir, "index.json"), v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: list}),
		s.collect())
}

// collect removes blobs that no image of the index on the disk needs, and what a pull that was killed has left.
func (s Store) collect() error {
	index, list, err := s.read()
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, d := range list {
		_, blobs, err := checked(index, d)
		if err != nil {
			return err
		}
		for _, blob := range blobs {
			needed[blob.Digest.Hex] = true
		}
	}
	entries, _ := os.ReadDir(s.blob("")) // there is none before the first pull
	for _, entry := range entries {
		if !needed[entry.Name()] {
			err = errors.Join(err, os.Remove(s.blob(entry.Name())))
		}
	}
	return err
}

// checked opens an image, and returns all its blobs. It checks manifest and configuration, which a disk may have changed.
func checked(index v1.ImageIndex, d v1.Descriptor) (v1.Image, []v1.Descriptor, error) {
	img, err := index.Image(d.Digest)
	if err != nil {
		return nil, nil, err
	}
	manifest, err1 := img.Manifest()
	digest, err2 := img.Digest()
	config, err3 := img.ConfigName()
	err = errors.Join(err1, err2, err3)
	if err == nil && (digest != d.Digest || config != manifest.Config.Digest) {
		err = errors.New("a file has another digest")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s is damaged; remove the image with outrigger rmi and pull it again: %w", d.Digest, err)
	}
	return img, append(manifest.Layers, manifest.Config, d), nil
}

// List returns the images. One that is damaged has no creation time.
func (s Store) List() ([]Stored, error) {
	index, list, err := s.read()
	all := []Stored{}
	for _, d := range list {
		one := Stored{Name: d.Annotations[refName], Digest: d.Digest.String()}
		if img, blobs, err := checked(index, d); err == nil {
			for _, blob := range blobs {
				one.Size += blob.Size
			}
			if config, err := img.ConfigFile(); err == nil {
				one.Created, one.Platform = config.Created.Time, config.OS+"/"+config.Architecture
			}
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Stored) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// stored is the name of a reference in the store: with docker.io, where name writes index.docker.io.
func stored(ref name.Reference) string {
	return strings.Replace(ref.Name(), name.DefaultRegistry, "docker.io", 1)
}

// named matches the entries of a reference, by name or by digest.
func named(ref name.Reference) match.Matcher {
	return func(d v1.Descriptor) bool { return match.Name(stored(ref))(d) || d.Digest.String() == ref.Identifier() }
}

// leastID is how much of a digest stands for it, in hex digits: as much as docker shows.
const leastID = 12

// Remove removes images by reference, or by digest. One that is not there is an error unless forced. It returns what
// was removed, and frees their blobs.
func (s Store) Remove(ctx context.Context, names []string, force bool) (gone []string, err error) {
	var wrong []error
	err = s.change(ctx, func(list []v1.Descriptor) ([]v1.Descriptor, error) {
		for _, text := range names {
			ref, _ := name.ParseReference(text)
			id, before := strings.TrimPrefix(text, "sha256:"), len(list)
			list = slices.DeleteFunc(list, func(d v1.Descriptor) bool {
				chosen := ref != nil && named(ref)(d) || len(id) >= leastID && strings.HasPrefix(d.Digest.Hex, id)
				if chosen {
					gone = append(gone, d.Annotations[refName]+"@"+d.Digest.String())
				}
				return chosen
			})
			if len(list) == before && !force {
				wrong = append(wrong, fmt.Errorf("image %s: %w; outrigger images lists those that were", text, ErrNotPulled))
			}
		}
		return list, nil
	})
	return gone, errors.Join(append(wrong, err)...)
}

// Pull downloads an image for one platform; fresh reports whether the store had another by its name, or none. report is
// called by several at once.
func (s Store) Pull(ctx context.Context, text, platform string, report func(v1.Update)) (img Stored, fresh bool, err error) {
	if OnHost(text) {
		return img, false, fmt.Errorf("image %s: it is on this host already: run it as it is", text)
	}
	remote, err := Open(ctx, text, Options{Platform: platform, Policy: Guest})
	if err != nil {
		return img, false, err
	}
	if fresh, err = s.keep(ctx, remote, report); err != nil {
		return img, false, fmt.Errorf("image %s: %w", text, err)
	}
	return Stored{Name: stored(remote.ref), Digest: remote.Digest.String()}, fresh, nil
}

func (s Store) keep(ctx context.Context, img *Image, report func(v1.Update)) (fresh bool, err error) {
	d, err1 := partial.Descriptor(img.image)
	config, err2 := img.image.ConfigFile()
	if err := errors.Join(err1, err2); err != nil {
		return false, err
	}
	same := match.Name(stored(img.ref))
	d.Annotations, d.Platform = map[string]string{refName: stored(img.ref)}, config.Platform()
	err = s.change(ctx, func(list []v1.Descriptor) ([]v1.Descriptor, error) {
		fresh = !slices.ContainsFunc(list, func(other v1.Descriptor) bool { return same(other) && other.Digest == d.Digest })
		return append(slices.DeleteFunc(list, same), *d), s.download(img.image, report)
	})
	return fresh, err
}

// download brings the blobs that are missing to their places, each at once when its digest was checked. It makes layers
// of the configuration and the manifest, which layout would write in place.
func (s Store) download(img v1.Image, report func(v1.Update)) error {
	layers, err1 := img.Layers()
	config, err2 := partial.ConfigLayer(img)
	manifest, err3 := img.RawManifest()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var done atomic.Int64
	var total int64
	arrived := func(n int) { report(v1.Update{Total: total, Complete: done.Add(int64(n))}) }
	missing := incoming{Image: img}
	for _, layer := range append(layers, config, static.NewLayer(manifest, "")) {
		digest, err1 := layer.Digest()
		size, err2 := layer.Size()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if info, err := os.Stat(s.blob(digest.Hex)); err == nil && info.Size() == size {
			continue
		}
		total += size
		missing.layers = append(missing.layers, incomingLayer{layer, nil, arrived})
	}
	if total == 0 {
		return nil
	}
	if err := layout.Path(s.Dir).WriteImage(missing); err != nil {
		return err
	}
	dir, err := os.Open(s.Dir)
	if err == nil { // the index is written when all blobs are on the disk
		err = errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
	}
	return err
}

// incoming is an image that has other layers.
type incoming struct {
	v1.Image
	layers []v1.Layer
}

func (i incoming) Layers() ([]v1.Layer, error) { return i.layers, nil }

// incomingLayer reports how many of its bytes have arrived.
type incomingLayer struct {
	v1.Layer
	io.ReadCloser
	arrived func(n int)
}

func (l incomingLayer) Compressed() (_ io.ReadCloser, err error) {
	l.ReadCloser, err = l.Layer.Compressed()
	return l, err
}

func (l incomingLayer) Read(data []byte) (int, error) {
	n, err := l.ReadCloser.Read(data)
	l.arrived(n)
	return n, err
}

// open returns an image that was pulled, or [ErrNotPulled]. All its files are open: a removal leaves them to it.
func (s Store) open(ref name.Reference, platform v1.Platform) (v1.Image, error) {
	index, list, err := s.read()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(d v1.Descriptor) bool { return named(ref)(d) && isImageFor(d, platform) })
	if at < 0 {
		return nil, ErrNotPulled
	}
	img, err := s.hold(index, list[at])
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotPulled // it was removed since the index was read
	}
	return img, err
}

func (s Store) hold(index v1.ImageIndex, d v1.Descriptor) (v1.Image, error) {
	img, blobs, err := checked(index, d)
	if err != nil {
		return nil, err
	}
	h := held{Image: img, files: map[v1.Hash]*os.File{}}
	for _, blob := range blobs {
		if h.files[blob.Digest], err = os.Open(s.blob(blob.Digest.Hex)); err != nil {
			return nil, err
		}
	}
	if h.config, err = img.RawConfigFile(); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(h)
}

// held is an image whose files are open.
type held struct {
	v1.Image // has its manifest in memory
	config   []byte
	files    map[v1.Hash]*os.File
}

func (h held) RawConfigFile() ([]byte, error) { return h.config, nil }

func (h held) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	layer, err := h.Image.LayerByDigest(digest)
	return heldLayer{layer, h.files[digest]}, err
}

type heldLayer struct {
	v1.Layer
	file *os.File
}

// Compressed opens the file again: it may be read by several at once, and may have been removed.
func (l heldLayer) Compressed() (io.ReadCloser, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()))
}
