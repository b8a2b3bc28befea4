// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/outrigger/outrigger/internal/sbom"
)

const license = "Apache-2.0"

// makeBills writes a bill of materials for what is installed, for the plugin of
// kubectl, and for each image.
func (b *builder) makeBills(ctx context.Context) error {
	if b.wants(PartArchive, PartDeb) {
		if err := b.billOfInstallation(ctx); err != nil {
			return err
		}
	}
	if b.wants(PartKubectl) {
		if err := b.billOfKubectl(); err != nil {
			return err
		}
	}
	if b.wants(PartImages) {
		for _, image := range b.images() {
			if err := b.billOfImage(ctx, image); err != nil {
				return fmt.Errorf("%s: %w", image, err)
			}
		}
	}
	return nil
}

func (b *builder) writeBill(name string, d *sbom.Document) error {
	data, err := d.Encode()
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(b.fresh, "sbom", name+".spdx.json"), append(data, '\n'))
}

// billOfInstallation is of the archive and the package, whose contents are the
// same.
func (b *builder) billOfInstallation(ctx context.Context) error {
	d := sbom.New("outrigger-"+b.source.version, b.source.date)
	in := d.AddArtifact(sbom.Artifact{Name: "outrigger", Version: b.source.version, License: license, Purpose: "INSTALL"})
	for _, program := range hostPrograms() {
		if err := b.addProgramFile(d, in, program, "amd64", ""); err != nil {
			return err
		}
	}
	if err := b.addGuest(d, in); err != nil {
		return err
	}
	if err := b.addHostFiles(ctx, d, in, "/bin/busybox"); err != nil {
		return err
	}
	return b.writeBill("outrigger", d)
}

func (b *builder) billOfKubectl() error {
	d := sbom.New(kubectlName+"-"+b.source.version, b.source.date)
	in := d.AddArtifact(sbom.Artifact{Name: kubectlName, Version: b.source.version, License: license, Purpose: "ARCHIVE"})
	for _, arch := range b.Architectures {
		if err := b.addProgramFile(d, in, kubectlName, arch, arch); err != nil {
			return err
		}
	}
	return b.writeBill(kubectlName, d)
}

func (b *builder) addProgramFile(d *sbom.Document, in sbom.ID, program, arch, named string) error {
	content, err := os.ReadFile(filepath.Join(b.programs(arch), program))
	if err != nil {
		return err
	}
	return b.addProgram(d, in, program, named, content)
}

func (b *builder) addProgram(d *sbom.Document, in sbom.ID, program, arch string, content []byte) error {
	err := d.AddProgram(sbom.Program{Name: program, Version: b.source.version, License: license, Architecture: arch, In: in}, content)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// addGuest adds what the image of the pod VM is made of.
func (b *builder) addGuest(d *sbom.Document, in sbom.ID) error {
	for _, p := range b.guest.Packages {
		// The name of a package's file is NAME_VERSION_ARCHITECTURE.deb.
		parts := strings.Split(strings.TrimSuffix(p.File, ".deb"), "_")
		if len(parts) != 3 {
			return fmt.Errorf("%s is not the name of a package's file", p.File)
		}
		version := strings.ReplaceAll(parts[1], "%3a", ":")
		b.addDebian(d, in, debianPackage{name: p.Name, version: version, architecture: parts[2], sha256: p.SHA256})
	}
	return b.addProgram(d, in, "podvm-guest", "", b.guest.Program)
}

// billOfImage lists what is really in the image's layers.
func (b *builder) billOfImage(ctx context.Context, image string) error {
	one, variants, err := b.variants(image)
	if err != nil {
		return err
	}
	d := sbom.New(image+"-"+b.source.version, b.source.date)
	in := d.AddArtifact(sbom.Artifact{
		Name: b.imageName(image), Version: b.source.version, Purpose: "CONTAINER", SHA256: one.Digest.Hex,
	})
	for _, variant := range variants {
		if err := b.addVariant(ctx, d, in, variant); err != nil {
			return err
		}
	}
	return b.writeBill("image-"+image, d)
}

// ownFolder is where images have what was built here; all else is a package's.
const ownFolder = "/usr/local/bin/"

func (b *builder) addVariant(ctx context.Context, d *sbom.Document, in sbom.ID, variant v1.Image) error {
	config, err := variant.ConfigFile()
	if err != nil {
		return err
	}
	content := mutate.Extract(variant)
	defer content.Close()
	var foreign []string
	for files := tar.NewReader(content); ; {
		h, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return b.addHostFiles(ctx, d, in, foreign...)
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg:
			continue
		}
		below, own := strings.CutPrefix("/"+h.Name, ownFolder)
		switch {
		case !own:
			foreign = append(foreign, "/"+h.Name)
		case below == "podvm/manifest.json":
			err = b.addGuest(d, in)
		case !strings.Contains(below, "/"):
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = b.addProgram(d, in, below, config.Architecture, content)
			}
		}
		if err != nil {
			return err
		}
	}
}

// debianPackage is one of which something is handed out.
type debianPackage struct{ name, version, architecture, sha256 string }

func (b *builder) addDebian(d *sbom.Document, in sbom.ID, p debianPackage) {
	d.AddDebian(in, p.name, p.version, p.architecture)
	key := p.name + "=" + p.version
	if b.materials[key].sha256 == "" {
		b.materials[key] = p
	}
}

// trustBundle is made of a package when it is installed, so it is not a
// package's.
const trustBundle = "/etc/ssl/certs/ca-certificates.crt"

// addHostFiles adds the packages of this machine that files come from.
func (b *builder) addHostFiles(ctx context.Context, d *sbom.Document, in sbom.ID, files ...string) error {
	names, err := b.ownersOf(ctx, files)
	if err != nil || len(names) == 0 {
		return err
	}
	out, err := b.run(ctx, nil, "dpkg-query", append([]string{"-W", "-f", "${Package}\t${Version}\t${Architecture}\n"}, names...)...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(out)) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 3 {
			return fmt.Errorf("dpkg-query says %q of %v", line, names)
		}
		b.addDebian(d, in, debianPackage{name: parts[0], version: parts[1], architecture: parts[2]})
	}
	return nil
}

// ownersOf returns the packages of files. Where /lib is /usr/lib, dpkg knows a
// file by either name.
func (b *builder) ownersOf(ctx context.Context, files []string) ([]string, error) {
	names := map[string]bool{}
	args := []string{"-S"}
	for _, file := range files {
		if file == trustBundle {
			names["ca-certificates"] = true
			continue
		}
		args = append(args, file, otherName(file))
	}
	if len(args) == 1 {
		return slices.Collect(maps.Keys(names)), nil
	}
	// It fails as one of the two names is unknown, and says what it knows.
	out, problem := b.run(ctx, nil, "dpkg-query", args...)
	owner := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, found := strings.Cut(strings.TrimSpace(line), ": ")
		if found && !strings.HasPrefix(name, "diversion ") {
			owner[file] = name
		}
	}
	for i := 1; i < len(args); i += 2 {
		name := cmp.Or(owner[args[i]], owner[args[i+1]])
		if name == "" {
			return nil, fmt.Errorf("%s is in an image and in no package of Debian's: %w", args[i], problem)
		}
		names[name] = true
	}
	return slices.Collect(maps.Keys(names)), nil
}

func otherName(file string) string {
	if below, inUsr := strings.CutPrefix(file, "/usr/"); inUsr {
		return "/" + below
	}
	return "/usr" + file
}
