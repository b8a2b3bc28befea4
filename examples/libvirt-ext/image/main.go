// SPDX-License-Identifier: Apache-2.0

// Command image packs files of this machine into a container image, written as
// an OCI layout folder. It needs no daemon, no registry and no privileges.
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// words is a flag of several words.
type words []string

func (w *words) String() string { return strings.Join(*w, " ") }

func (w *words) Set(text string) error {
	*w = strings.Fields(text)
	return nil
}

func main() {
	var entrypoint words
	output := flag.String("output", "", "folder of the OCI layout; what is there is replaced")
	tag := flag.String("tag", "latest", "the image's name in the layout")
	libraries := flag.Bool("libraries", false, "add the dynamic loader and the libraries that the programs need")
	flag.Var(&entrypoint, "entrypoint", "program in the image, and its arguments")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image -output DIR [flags] /PATH/IN/IMAGE=FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *output == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*output, *tag, entrypoint, *libraries, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(output, tag string, entrypoint []string, libraries bool, pairs []string) error {
	contents, err := parse(pairs)
	if err == nil && libraries {
		err = contents.addLibraries()
	}
	if err != nil {
		return err
	}
	image, err := pack(contents, entrypoint)
	if err != nil {
		return err
	}
	if err := write(image, output, tag); err != nil {
		return err
	}
	digest, err := image.Digest()
	fmt.Printf("%s: image %s %s\n", output, tag, digest)
	return err
}

// pack makes an image of one layer.
func pack(f files, entrypoint []string) (v1.Image, error) {
	content, err := f.archive()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.History = "linux", runtime.GOARCH, v1.Time{Time: epoch}, nil
	config.Config = v1.Config{Entrypoint: entrypoint, WorkingDir: "/", Env: []string{"PATH=/usr/local/bin:/bin"}}
	return mutate.ConfigFile(image, config)
}

// epoch dates everything, so that equal files give equal images.
var epoch = time.Unix(0, 0).UTC()

// write replaces the folder, but only if it holds a layout or nothing.
func write(image v1.Image, dir, tag string) error {
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		if _, err := os.Stat(dir + "/oci-layout"); err != nil {
			return fmt.Errorf("%s is not empty and no OCI layout: name another folder with -output", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return target.AppendImage(image,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": cmp.Or(tag, "latest")}),
		layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
}
