// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger/outrigger/internal/guest/guestinit"
	"github.com/outrigger/outrigger/internal/ociimage"
)

// containerFile is the result of [FormatDocker], containerName what the image is
// called when it is loaded: the provider's default.
const (
	containerFile = "podvm.tar"
	containerName = "outrigger/podvm:latest"
)

// writeContainer packs the root file system as a container image, as `docker
// save` would have written it.
func (b *builder) writeContainer(context.Context) error {
	if !b.wants(FormatDocker) {
		return nil
	}
	layer, err := b.containerLayer()
	if err != nil {
		return err
	}
	image, err := b.containerImage(layer)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(containerName)
	if err != nil {
		return err
	}
	return b.streamResult(containerFile, func(out io.Writer) error { return tarball.Write(tag, image, out) })
}

// containerImage returns an image of one layer, whose first process does not touch what
// belongs to the machine.
func (b *builder) containerImage(layer []byte) (v1.Image, error) {
	packed, err := ociimage.Layer(layer)
	if err != nil {
		return nil, err
	}
	return ociimage.Stack(empty.Image, "amd64", b.mtime, "podvm-image", v1.Config{
		Entrypoint: []string{"/" + imageInit, guestinit.ContainerArg}, StopSignal: "SIGTERM",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "container=docker"},
	}, packed)
}

// onlyMachine reports whether a file of the initramfs is of no use in a container,
// which has a kernel and devices from elsewhere.
func onlyMachine(file string) bool {
	top, _, _ := strings.Cut(file, "/")
	return top == "modules" || file == "modules.order" || file == "modules.alias" || strings.HasPrefix(file, "dev/")
}

// containerLayer returns the tree as an archive.
func (b *builder) containerLayer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range b.tree.sorted() {
		if onlyMachine(e.name) {
			continue
		}
		if err := w.WriteHeader(e.tarHeader(b)); err != nil {
			return nil, err
		}
		if e.mode&typeMask == typeFile {
			if _, err := w.Write(e.data); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), w.Close()
}

// typeMask is the part of the mode that says what a file is (stat(2), S_IFMT).
const typeMask = 0o170000

func (e *entry) tarHeader(b *builder) *tar.Header {
	head := &tar.Header{Format: tar.FormatPAX, Name: e.name, Mode: int64(e.mode & 0o7777), ModTime: b.mtime}
	switch e.mode & typeMask {
	case typeDir:
		head.Typeflag, head.Name = tar.TypeDir, e.name+"/"
	case typeLink:
		head.Typeflag, head.Linkname = tar.TypeSymlink, string(e.data)
	default:
		head.Typeflag, head.Size = tar.TypeReg, int64(len(e.data))
	}
	return head
}
