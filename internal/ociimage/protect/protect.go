// SPDX-License-Identifier: Apache-2.0

// Package protect has the commands of oci-image that encrypt and sign images.
package protect

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/internal/ociimage/encrypted"
	"github.com/outrigger/outrigger/internal/ociimage/signed"
	"github.com/outrigger/outrigger/internal/program"
)

// Commands are encrypt and sign.
var Commands = map[string]func(stdout io.Writer, args []string) error{"encrypt": encrypt, "sign": sign}

// What they need; the key is a file so that it is in no list of processes.
const (
	encryptUsage = "usage: oci-image encrypt -key FILE -kid kbs:///REPOSITORY/TYPE/TAG REFERENCE NEW-REFERENCE"
	signUsage    = "usage: oci-image sign -key FILE REFERENCE"
)

// encrypt copies an image of a registry, of all its architectures, with its layers encrypted.
func encrypt(stdout io.Writer, args []string) error {
	var keyID string
	refs, secret, err := keyAndReferences(stdout, encryptUsage, args, 2, func(fs *flag.FlagSet) {
		fs.StringVar(&keyID, "kid", "", "where the key broker has the key, a `URI`")
	})
	if err != nil || refs == nil {
		return err
	}
	key := encrypted.Key{ID: keyID, Secret: secret}
	return program.UntilSignal(func(ctx context.Context) error {
		digest, err := encryptTo(ociimage.RegistryOptions(ctx), refs[0], refs[1], key)
		if err == nil {
			_, err = fmt.Fprintln(stdout, refs[1].Context().Name()+"@"+digest.String())
		}
		return err
	})
}

// sign adds a signature to an image of a registry.
func sign(stdout io.Writer, args []string) error {
	refs, text, err := keyAndReferences(stdout, signUsage, args, 1, func(*flag.FlagSet) {})
	if err != nil || refs == nil {
		return err
	}
	key, err := signed.ParsePrivateKey(text)
	if err != nil {
		return fmt.Errorf("-key: %w", err)
	}
	return program.UntilSignal(func(ctx context.Context) error {
		digest, err := signed.Sign(refs[0], key, ociimage.RegistryOptions(ctx)...)
		if err == nil {
			_, err = fmt.Fprintln(stdout, refs[0].Context().Name()+"@"+digest.String())
		}
		return err
	})
}

// keyAndReferences reads a command line of count references and a file. It returns none if help was asked for.
func keyAndReferences(stdout io.Writer, usage string, args []string, count int, define func(*flag.FlagSet)) (refs []name.Reference, key []byte, err error) {
	fs := flag.NewFlagSet("oci-image", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	file := fs.String("key", "", "`file` with the key")
	define(fs)
	err = fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, usage)
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return nil, nil, nil
	}
	if err != nil || fs.NArg() != count || *file == "" {
		return nil, nil, program.Usagef("%s", usage)
	}
	for _, arg := range fs.Args() {
		ref, err := name.ParseReference(arg)
		if err != nil {
			return nil, nil, program.UsageError(err)
		}
		refs = append(refs, ref)
	}
	key, err = os.ReadFile(*file)
	return refs, key, err
}

func encryptTo(options []remote.Option, from, to name.Reference, key encrypted.Key) (v1.Hash, error) {
	plain, err := imagesAt(from, options)
	if err != nil {
		return v1.Hash{}, err
	}
	dir, err := os.MkdirTemp("", "oci-image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(dir)
	var images []v1.Image
	for _, one := range plain {
		image, err := encrypted.Encrypt(one, key, dir)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("encrypt %s: %w", from, err)
		}
		images = append(images, image)
	}
	if len(images) == 1 {
		if err := remote.Write(to, images[0], options...); err != nil {
			return v1.Hash{}, err
		}
		return images[0].Digest()
	}
	index, err := ociimage.Join(images)
	if err == nil {
		err = remote.WriteIndex(to, index, options...)
	}
	if err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// imagesAt returns an image, or all images of an index, without attestations.
func imagesAt(ref name.Reference, options []remote.Option) ([]v1.Image, error) {
	at, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	if !at.MediaType.IsIndex() {
		image, err := at.Image()
		return []v1.Image{image}, err
	}
	index, err := at.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	for _, desc := range manifest.Manifests {
		if !desc.MediaType.IsImage() || desc.Platform != nil && desc.Platform.OS == "unknown" {
			continue
		}
		image, err := index.Image(desc.Digest)
		if err != nil {
			return nil, err
		}
		all = append(all, image)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("index %s has no images", ref)
	}
	return all, nil
}
