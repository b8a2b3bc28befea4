// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"golang.org/x/sync/errgroup"
)

// downloads is how many layers are downloaded at once, as docker does.
const downloads = 3

// Layer is how far the download of a layer is, in bytes.
type Layer struct {
	Digest     v1.Hash
	Done, Size int64
}

// Pull downloads an image for one platform, unless the store has it as the registry has it now; fresh reports whether
// it had to. Blobs of a pull that was killed are not downloaded again. report is called while layers arrive, by several at once.
func (s Store) Pull(ctx context.Context, text, platform string, report func(Layer)) (img Stored, fresh bool, err error) {
	want, err := ParsePlatform(platform)
	if err == nil {
		img, fresh, err = s.pull(ctx, text, want, report)
	}
	if err != nil {
		err = fmt.Errorf("image %s: %w", text, err)
	}
	return img, fresh, err
}

func (s Store) pull(ctx context.Context, text string, platform v1.Platform, report func(Layer)) (img Stored, fresh bool, err error) {
	if OnHost(text) {
		return img, false, errors.New("it is on this host already: run it as it is")
	}
	remote := &Image{Name: text}
	if err = remote.parse(); err == nil {
		err = remote.ask(ctx, platform, nil)
	}
	if err == nil {
		err = remote.load(platform)
	}
	if err != nil {
		return img, false, err
	}
	entry, err := remote.entry(platform)
	if err != nil {
		return img, false, err
	}
	index, err := s.index()
	if err == nil && !has(index, entry) {
		err = s.change(ctx, func(index *v1.IndexManifest) error {
			if has(index, entry) { // another process was faster
				return nil
			}
			fresh = true
			index.Manifests = slices.DeleteFunc(index.Manifests, func(d v1.Descriptor) bool { return sameImage(d, entry) })
			index.Manifests = append(index.Manifests, entry)
			return s.download(ctx, remote.image, entry.Digest, report)
		})
	}
	if err == nil {
		img, err = s.stored(entry)
	}
	return img, fresh, err
}

// entry is that of the index for an image.
func (i *Image) entry(want v1.Platform) (v1.Descriptor, error) {
	d, err := partial.Descriptor(i.image)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d.Platform, d.Annotations = &want, map[string]string{refName: i.ref.Name()}
	return *d, nil
}

func sameImage(a, b v1.Descriptor) bool {
	return a.Annotations[refName] == b.Annotations[refName] && platformOf(a) == platformOf(b)
}

func has(index *v1.IndexManifest, entry v1.Descriptor) bool {
	return slices.ContainsFunc(index.Manifests, func(d v1.Descriptor) bool { return sameImage(d, entry) && d.Digest == entry.Digest })
}

// download brings all blobs of an image to their places.
func (s Store) download(ctx context.Context, img v1.Image, digest v1.Hash, report func(Layer)) error {
	layers, err1 := img.Layers()
	config, err2 := partial.ConfigLayer(img)
	raw, err3 := img.RawManifest()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	group, all := errgroup.WithContext(ctx)
	group.SetLimit(downloads)
	seen := map[v1.Hash]bool{}
	for _, layer := range append(layers, config) {
		d, err1 := layer.Digest()
		size, err2 := layer.Size()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if seen[d] {
			continue
		}
		seen[d] = true
		report(Layer{Digest: d, Size: size})
		group.Go(func() error {
			return s.put(all, Layer{Digest: d, Size: size}, layer.Compressed, report)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(raw))), nil }
	return s.put(ctx, Layer{Digest: digest, Size: int64(len(raw))}, open, func(Layer) {})
}

// put brings a blob to its place, at once or not at all.
func (s Store) put(ctx context.Context, l Layer, open func() (io.ReadCloser, error), report func(Layer)) error {
	place := s.blob(l.Digest)
	if info, err := os.Stat(place); err == nil && info.Size() == l.Size {
		report(Layer{l.Digest, l.Size, l.Size})
		return nil
	}
	from, err := open()
	if err != nil {
		return err
	}
	defer from.Close()
	temp, err := os.CreateTemp(filepath.Dir(place), ".pull-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // does nothing once it is renamed
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(temp, sum, arrival(func(n int) error {
		l.Done += int64(n)
		report(l)
		return context.Cause(ctx)
	})), from)
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil && got != l.Digest.Hex {
		err = fmt.Errorf("the registry sent another content, with digest sha256:%s", got)
	}
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("blob %s: %w", l.Digest, err)
	}
	return os.Rename(temp.Name(), place)
}

// arrival is called with the length of what is written.
type arrival func(int) error

func (a arrival) Write(data []byte) (int, error) { return len(data), a(len(data)) }
