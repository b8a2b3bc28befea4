// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// ErrNotPulled means that an image is not in the store.
var ErrNotPulled = errors.New("it was not pulled to this host")

// Store keeps images of registries on this host, in one OCI layout. Its index names only images whose blobs are all
// there; blobs have their place when their digest is checked. One process at a time changes it, by a lock; readers
// need none: [Open] holds all files of an image, which its removal leaves to it.
type Store struct {
	// Dir is its folder, which is made when it is missing; empty is a store without images.
	Dir string
	// Wait, if set, is called when another process changes the store, before it is waited for.
	Wait func()
}

// Stored is an image in a store.
type Stored struct {
	// Name is the whole reference, such as docker.io/library/busybox:1.
	Name     string            `json:"name"`
	Digest   string            `json:"digest"`
	Platform string            `json:"platform"`
	Size     int64             `json:"size"` // of its blobs, in bytes
	Created  time.Time         `json:"created"`
	Labels   map[string]string `json:"labels,omitempty"`
}

func (s Store) blob(digest v1.Hash) string {
	return filepath.Join(s.Dir, "blobs", digest.Algorithm, digest.Hex)
}

// index returns what the store has.
func (s Store) index() (*v1.IndexManifest, error) {
	index := &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	err := statefile.Read(filepath.Join(s.Dir, "index.json"), index)
	if s.Dir == "" || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return index, err
}

// change lets one process at a time edit the index, and then frees blobs that no image needs.
func (s Store) change(ctx context.Context, edit func(*v1.IndexManifest) error) error {
	if s.Dir == "" {
		return errors.New("there is no folder for images of this host: set HOME, or name one with --image-cache")
	}
	path := filepath.Join(s.Dir, "lock")
	lock, err := statefile.TryAcquire(path)
	if lock == nil && err == nil {
		if s.Wait != nil {
			s.Wait()
		}
		lock, err = statefile.Acquire(ctx, path)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	blobs := filepath.Join(s.Dir, "blobs", "sha256")
	index, err := s.index()
	if err == nil {
		err = os.MkdirAll(blobs, 0o700)
	}
	if slices.ContainsFunc(index.Manifests, func(d v1.Descriptor) bool { return !d.MediaType.IsImage() }) {
		return fmt.Errorf("%s has more than images of single platforms, so it is not outrigger's: name another --image-cache", s.Dir)
	}
	for _, step := range []func() error{
		func() error { return edit(index) },
		func() error { return statefile.SyncFolder(blobs) },
		func() error { return statefile.Write(filepath.Join(s.Dir, "oci-layout"), layoutVersion) },
		func() error { return statefile.Write(filepath.Join(s.Dir, "index.json"), index) },
		func() error { return s.collect(index, blobs) },
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// layoutVersion is that of image-spec, image-layout.md.
var layoutVersion = map[string]string{"imageLayoutVersion": "1.0.0"}

// collect removes blobs that no image needs, and what a pull that was killed has left.
func (s Store) collect(index *v1.IndexManifest, dir string) error {
	needed := map[string]bool{}
	for _, d := range index.Manifests {
		manifest, _, err := s.manifest(d.Digest)
		if err != nil {
			return err
		}
		needed[d.Digest.Hex] = true
		for _, blob := range append(manifest.Layers, manifest.Config) {
			needed[blob.Digest.Hex] = true
		}
	}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if !needed[entry.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

// read returns a small blob. A disk may have changed it, so its digest is checked again.
func (s Store) read(digest v1.Hash) ([]byte, error) {
	data, err := os.ReadFile(s.blob(digest))
	if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) != digest.Hex {
		err = fmt.Errorf("%s is damaged; remove the image with outrigger rmi and pull it again", s.blob(digest))
	}
	return data, err
}

func (s Store) manifest(digest v1.Hash) (*v1.Manifest, []byte, error) {
	raw, err := s.read(digest)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := v1.ParseManifest(strings.NewReader(string(raw)))
	return manifest, raw, err
}

// familiar is a reference as people write it who know where docker.io is.
func familiar(reference string) string {
	if rest, ok := strings.CutPrefix(reference, name.DefaultRegistry+"/"); ok {
		return "docker.io/" + rest
	}
	return reference
}

func (s Store) stored(d v1.Descriptor) (Stored, error) {
	img := Stored{Name: familiar(d.Annotations[refName]), Digest: d.Digest.String(), Platform: platformOf(d), Size: d.Size}
	manifest, _, err := s.manifest(d.Digest)
	if err != nil {
		return img, err
	}
	for _, blob := range append(manifest.Layers, manifest.Config) {
		img.Size += blob.Size
	}
	data, err := s.read(manifest.Config.Digest)
	if err != nil {
		return img, err
	}
	config := v1.ConfigFile{}
	err = json.Unmarshal(data, &config)
	img.Created, img.Labels = config.Created.Time, config.Config.Labels
	return img, err
}

func platformOf(d v1.Descriptor) string {
	if d.Platform == nil {
		return ""
	}
	return d.Platform.String()
}

// List returns the images, by name. One that cannot be read has no creation time.
func (s Store) List() ([]Stored, error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	all := []Stored{}
	for _, d := range index.Manifests {
		img, _ := s.stored(d)
		all = append(all, img)
	}
	slices.SortFunc(all, func(a, b Stored) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Platform, b.Platform))
	})
	return all, nil
}

// find returns the entries of a reference, for all platforms.
func find(index *v1.IndexManifest, ref name.Reference) []v1.Descriptor {
	return slices.DeleteFunc(slices.Clone(index.Manifests), func(d v1.Descriptor) bool {
		return d.Annotations[refName] != ref.Name() && d.Digest.String() != ref.Identifier()
	})
}

// Remove removes images by reference, or by the beginning of a digest: those that have it, if they have one name
// or with force, which also makes an image that is not there no error. It returns what was removed, and frees their blobs.
func (s Store) Remove(ctx context.Context, names []string, force bool) (gone []string, err error) {
	var wrong []error
	err = s.change(ctx, func(index *v1.IndexManifest) error {
		for _, text := range names {
			found, err := choose(index, text, force)
			wrong = append(wrong, err)
			for _, d := range found {
				gone = append(gone, familiar(d.Annotations[refName])+"@"+d.Digest.String())
				index.Manifests = slices.DeleteFunc(index.Manifests, func(other v1.Descriptor) bool { return sameImage(d, other) })
			}
		}
		return nil
	})
	return gone, errors.Join(append(wrong, err)...)
}

// leastID is how much of a digest is wanted, in hex digits.
const leastID = 4

func choose(index *v1.IndexManifest, text string, force bool) (found []v1.Descriptor, err error) {
	if ref, err := name.ParseReference(text); err == nil {
		found = find(index, ref)
	}
	id := strings.TrimPrefix(text, "sha256:")
	if len(found) == 0 && len(id) >= leastID {
		found = slices.DeleteFunc(slices.Clone(index.Manifests), func(d v1.Descriptor) bool { return !strings.HasPrefix(d.Digest.Hex, id) })
	}
	several := slices.ContainsFunc(found, func(d v1.Descriptor) bool { return d.Annotations[refName] != found[0].Annotations[refName] })
	switch {
	case len(found) == 0 && !force:
		return nil, fmt.Errorf("image %s: %w; outrigger images lists those that were", text, ErrNotPulled)
	case several && !force:
		return nil, fmt.Errorf("image %s has several names: remove them by name, or all with -f", text)
	}
	return found, nil
}

// open returns an image of the store, or [ErrNotPulled]. All its files are open.
func (s Store) open(ref name.Reference, platform v1.Platform) (v1.Image, error) {
	index, err := s.index()
	if err != nil {
		return nil, err
	}
	fitting := slices.DeleteFunc(find(index, ref), func(d v1.Descriptor) bool { return !isImageFor(d, platform) })
	if len(fitting) == 0 {
		return nil, ErrNotPulled
	}
	img, err := hold(s, forOldest(fitting)[0])
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotPulled // it was removed since the index was read
	}
	return img, err
}
