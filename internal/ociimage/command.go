// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/program"
)

// Command is the command line of oci-image.
type Command struct {
	Stdout, Stderr io.Writer
	// More are further commands by their names, of packages that link more.
	More map[string]func(stdout io.Writer, args []string) error
}

type arguments struct {
	output, name  string
	libraries     bool
	user          string
	entrypoint    []string
	architectures string
	files         []string
	links         map[string]string
}

// Run does what args say and returns the exit code.
func (c *Command) Run(args []string) int {
	return program.Exit("oci-image", c.Stderr, c.run(args))
}

func (c *Command) run(args []string) error {
	if len(args) == 0 {
		return c.pack(args)
	}
	if more, is := c.More[args[0]]; is {
		return more(c.Stdout, args[1:])
	}
	if args[0] == "push" {
		return c.push(args[1:])
	}
	return c.pack(args)
}

func (c *Command) pack(args []string) error {
	a, err := c.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return program.UsageError(err)
	}
	digest, err := a.build()
	if err == nil {
		fmt.Fprintf(c.Stdout, "%s: image %s %s\n", a.output, a.name, digest)
	}
	return err
}

func (c *Command) push(args []string) error {
	if len(args) != 2 {
		return program.Usagef("usage: oci-image push FOLDER REFERENCE")
	}
	return program.UntilSignal(func(ctx context.Context) error {
		digest, err := Push(ctx, args[0], args[1])
		if err != nil {
			return fmt.Errorf("push %s to %s: %w", args[0], args[1], err)
		}
		_, err = fmt.Fprintln(c.Stdout, digest)
		return err
	})
}

func (c *Command) parse(args []string) (*arguments, error) {
	a := &arguments{links: map[string]string{}}
	fs := flag.NewFlagSet("oci-image", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&a.output, "output", "", "`folder` of the OCI layout; what is there is replaced")
	fs.StringVar(&a.name, "tag", "latest", "the image's `name` in the layout, a tag or a whole reference")
	fs.BoolVar(&a.libraries, "libraries", false, "add the dynamic loader and the libraries that the programs need")
	fs.StringVar(&a.user, "user", "", "`UID:GID` of the program; root when empty")
	fs.Func("entrypoint", "program in the image, and its `arguments`", func(text string) error {
		a.entrypoint = strings.Fields(text)
		return nil
	})
	fs.Func("link", "symbolic link in the image, `/PATH=TARGET`; may be given more than once", func(text string) error {
		inside, target, ok := strings.Cut(text, "=")
		if !ok || !path.IsAbs(inside) || target == "" {
			return fmt.Errorf("%q is not /PATH=TARGET", text)
		}
		a.links[inside] = target
		return nil
	})
	fs.StringVar(&a.architectures, "arch", runtime.GOARCH, "architectures, with commas; {arch} in the name of a file is each of them")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(c.Stdout)
		fmt.Fprintln(c.Stdout, "usage: oci-image -output FOLDER [flags] /PATH/IN/IMAGE=FILE...\n       oci-image push FOLDER REFERENCE")
		for _, name := range slices.Sorted(maps.Keys(c.More)) {
			fmt.Fprintf(c.Stdout, "       oci-image %s -h\n", name)
		}
		fs.PrintDefaults()
		return nil, err
	}
	a.files = fs.Args()
	if err == nil && (a.output == "" || len(a.files) == 0) {
		err = errors.New("-output and at least one /PATH/IN/IMAGE=FILE are needed; see oci-image -h")
	}
	return a, err
}

func (a *arguments) build() (v1.Hash, error) {
	var images []v1.Image
	for arch := range strings.SplitSeq(a.architectures, ",") {
		image, err := a.image(strings.TrimSpace(arch))
		if err != nil {
			return v1.Hash{}, err
		}
		images = append(images, image)
	}
	return Write(a.output, a.name, images...)
}

func (a *arguments) image(arch string) (v1.Image, error) {
	var pairs []string
	for _, pair := range a.files {
		pairs = append(pairs, strings.ReplaceAll(pair, "{arch}", arch))
	}
	files, err := ParseFiles(pairs)
	if err != nil {
		return nil, err
	}
	if a.libraries {
		if arch != runtime.GOARCH {
			return nil, fmt.Errorf("-libraries are those of this machine, which is %s, not %s", runtime.GOARCH, arch)
		}
		if err := files.AddLibraries(); err != nil {
			return nil, err
		}
	}
	return Pack(files, Options{Entrypoint: a.entrypoint, User: a.user, Architecture: arch, Links: a.links})
}
