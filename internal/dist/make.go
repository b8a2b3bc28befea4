// SPDX-License-Identifier: Apache-2.0

// Package dist makes the folder that is handed to users who have no compiler:
// packages and archives of the programs, container images, charts, CRDs, bills
// of materials, build provenance, checksums and a signature. Equal sources,
// toolchain and Debian packages give equal bytes.
package dist

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/guest/image"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// builder carries the state from stage to stage.
type builder struct {
	Options
	source *source
	key    *ecdsa.PrivateKey // nil signs nothing
	work   string            // scratch folder, removed at the end
	fresh  string            // becomes Output
	guest  *image.Summary
	// licenses are the texts that go with the programs, by name of file.
	licenses map[string][]byte
	// materials are packages of Debian of which something is handed out.
	materials map[string]debianPackage
	// times has a line for each stage.
	times []string
}

// stage is a step of a build, which is left out when none of its parts is
// wanted.
type stage struct {
	name  string
	parts []string
	run   func(context.Context) error
}

// Make makes a distribution. It appears under its name when it is complete.
func Make(ctx context.Context, o Options) error {
	o.complete()
	if err := o.validate(); err != nil {
		return err
	}
	b := &builder{Options: o, materials: map[string]debianPackage{}}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { os.RemoveAll(b.work); os.RemoveAll(b.fresh) }()
	for _, s := range b.stages() {
		if err := b.perform(ctx, s); err != nil {
			return err
		}
	}
	if err := b.publish(); err != nil {
		return err
	}
	return b.summarize()
}

func (b *builder) stages() []stage {
	all := Parts()
	return []stage{
		{"programs", []string{PartArchive, PartDeb, PartKubectl}, b.compilePrograms},
		{"guest image", []string{PartArchive, PartDeb, PartImages}, b.makeGuest},
		{"licences", []string{PartArchive, PartDeb, PartKubectl}, b.collectLicenses},
		{"demo image", []string{PartArchive, PartDeb}, b.makeDemoImage},
		{"archive", []string{PartArchive}, b.makeArchive},
		{"deb", []string{PartDeb}, b.makeDeb},
		{"kubectl-outrigger", []string{PartKubectl}, b.makeKubectl},
		{"container images", []string{PartImages}, b.makeImages},
		{"charts", []string{PartCharts}, b.makeCharts},
		{"CRDs", []string{PartCRDs}, b.makeCRDs},
		{"Cluster API", []string{PartCAPI}, b.makeCAPI},
		{"bills of materials", all, b.makeBills},
		{"provenance", all, b.makeProvenance},
		{"checksums", all, b.makeChecksums},
	}
}

func (b *builder) perform(ctx context.Context, s stage) error {
	if !b.wants(s.parts...) {
		return nil
	}
	begun := time.Now()
	err := ctx.Err()
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		if ctx.Err() != nil { // what it says is that it was killed
			err = ctx.Err()
		}
		return fmt.Errorf("%s: %w", s.name, err)
	}
	taken := time.Since(begun).Seconds()
	b.times = append(b.times, fmt.Sprintf("%-70s %8.1f s", s.name, taken))
	b.Log("dist: %-20s %6.1f s", s.name, taken)
	return nil
}

// prepare does all that can fail before something is built.
func (b *builder) prepare(ctx context.Context) (err error) {
	if b.Key != "" {
		if b.key, err = loadKey(b.Key, b.Password); err != nil {
			return err
		}
	}
	if b.source, err = readSource(ctx, b.Root, b.Version); err != nil {
		return err
	}
	if b.URL == "" {
		b.URL = "https://" + modulePath + "/releases/download/" + b.source.version
	}
	if err := wholefile.Replaceable(b.Output, sumsName, "an earlier distribution"); err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	parent := filepath.Dir(filepath.Clean(b.Output))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if err := b.checkSpace(parent, os.TempDir()); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "outrigger-dist-"); err != nil {
		return err
	}
	if b.fresh, err = os.MkdirTemp(parent, ".dist-"); err != nil {
		os.RemoveAll(b.work)
	}
	return err
}

// publish lets everybody read the folder, whatever the umask, and gives it its
// name; the one that had it goes.
func (b *builder) publish() error {
	err := filepath.WalkDir(b.fresh, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(file, 0o755)
		}
		return os.Chmod(file, 0o644)
	})
	if err != nil {
		return err
	}
	output := filepath.Clean(b.Output)
	old := b.fresh + ".old"
	if err := os.Rename(output, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(b.fresh, output); err != nil {
		return errors.Join(err, os.Rename(old, output))
	}
	return os.RemoveAll(old)
}

// Space that a build takes, measured and rounded up, in MiB.
const (
	spaceForAll   = 3072
	spaceForFiles = 1024
)

func (b *builder) checkSpace(folders ...string) error {
	need := uint64(spaceForFiles)
	if b.wants(PartImages) {
		need = spaceForAll
	}
	for _, folder := range folders {
		var s syscall.Statfs_t
		if err := syscall.Statfs(folder, &s); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if free := s.Bavail * uint64(s.Bsize) >> 20; free < need {
			return fmt.Errorf("%s has %d MiB of free space and %d are needed: make room, or choose other folders with -output and TMPDIR", folder, free, need)
		}
	}
	return nil
}

// explain adds advice to errors that users see.
func explain(err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		return "interrupted; nothing is changed"
	}
	if errors.Is(err, syscall.ENOSPC) || strings.Contains(text, "no space left on device") {
		text += "; make room, or choose other folders with -output, TMPDIR and GOCACHE"
	}
	return text
}
