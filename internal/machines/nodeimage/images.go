// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	definition "github.com/outrigger/outrigger/images/node"
	"github.com/outrigger/outrigger/internal/ociimage"
)

// searchPath is where programs of the images are.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// layer makes one of what fill adds to a tree.
func (b *builder) layer(name string, fill func(*tree) error) (v1.Layer, error) {
	file := b.built(name + ".tar")
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	t := newTree(out, b.mtime)
	if err := fill(t); err != nil {
		return nil, err
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(file, tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
}

func (b *builder) image(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	config.Env = append(config.Env, searchPath)
	return ociimage.Stack(empty.Image, runtime.GOARCH, b.mtime, "node-image", config, layers...)
}

// podImages makes the archive of the images that kubeadm wants, by the names
// that kubeadm wants them.
func (b *builder) podImages(ctx context.Context) error {
	out, err := run(ctx, "", nil, b.built("kube"), "kubeadm", "config", "images", "list", "--kubernetes-version", b.version)
	if err != nil {
		return err
	}
	made, err := b.podImageKinds(ctx)
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for _, ref := range strings.Fields(out) {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		image := made[path.Base(tag.RepositoryStr())]
		if image == nil {
			return fmt.Errorf("kubeadm %s wants image %s, which nothing here makes", b.version, ref)
		}
		if path.Base(tag.RepositoryStr()) == "pause" {
			b.pause = ref
		}
		images[tag] = image
		b.summary.Images = append(b.summary.Images, ref)
	}
	b.Log("packing %d images of pods", len(images))
	return writeArchive(b.built(podArchive), images)
}

// podArchive is the file with the images of pods.
const podArchive = "images.tar"

// podImageKinds returns images by their names without registry and tag. Those of
// Kubernetes' own programs are one and the same, except for kube-proxy's.
func (b *builder) podImageKinds(ctx context.Context) (map[string]v1.Image, error) {
	tools, err := choose(ctx, strings.Fields(definition.ProxyPackages))
	if err != nil {
		return nil, err
	}
	kube, err := b.podImage("kube", nil, nil, func(t *tree) error { return b.addKube(t, podPrograms) })
	if err != nil {
		return nil, err
	}
	programs, err := kube.Layers()
	if err != nil {
		return nil, err
	}
	made := map[string]v1.Image{}
	for _, name := range podPrograms {
		made[name] = kube
	}
	made["kube-proxy"], err = b.podImage("kube-proxy", nil, programs, func(t *tree) error {
		return errors.Join(t.system(), b.addPackages(ctx, t, tools))
	})
	for _, name := range []string{"coredns", "pause"} {
		if err == nil {
			made[name], err = b.podImage(name, []string{"/" + name}, nil, func(t *tree) error { return t.copyIn(name, b.built(name), 0o755) })
		}
	}
	return made, err
}

// podImage makes an image of layers and of one that has what fill adds.
func (b *builder) podImage(name string, entrypoint []string, layers []v1.Layer, fill func(*tree) error) (v1.Image, error) {
	own, err := b.layer("pod-"+name, fill)
	if err != nil {
		return nil, err
	}
	return b.image(v1.Config{Entrypoint: entrypoint}, append(layers, own)...)
}

// addKube adds the program of Kubernetes under names.
func (b *builder) addKube(t *tree, names []string) error {
	if err := t.copyIn("usr/local/bin/kube", b.built("kube"), 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := t.link("usr/local/bin/"+name, "kube"); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) addPackages(ctx context.Context, t *tree, list []debPackage) error {
	for _, p := range list {
		if err := t.unpack(ctx, b.packageFile(p)); err != nil {
			return err
		}
	}
	return nil
}

// writeArchive writes images as `docker save` does.
func writeArchive(file string, images map[name.Tag]v1.Image) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	refs := map[name.Reference]v1.Image{}
	for tag, image := range images {
		refs[tag] = image
	}
	if err := tarball.MultiRefWrite(refs, io.Writer(out)); err != nil {
		return err
	}
	return out.Close()
}
