// SPDX-License-Identifier: Apache-2.0

// Package nodeimage builds the image of machines that are containers: Debian
// packages, the programs of Kubernetes from their modules, and the images that
// kubeadm wants. No registry is asked, nothing is mounted and no root is needed.
package nodeimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	definition "github.com/outrigger/outrigger/images/node"
	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/sbom"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Options say what to build.
type Options struct {
	// Output is the folder of the result; made if absent.
	Output string
	// Cache is the folder for packages; made if absent.
	Cache string
	// Repository is the image's name without the tag, which is the version of
	// Kubernetes.
	Repository string
	// Kubernetes is its version, such as v1.35.8; without one that of images/node/kube.
	Kubernetes string
	// Version is what our own programs call themselves.
	Version string
	// Log gets one line for each step.
	Log func(format string, args ...any)
}

// Summary says what was built.
type Summary struct {
	Image string `json:"image"`
	File  string `json:"file"`
	// Size is the file's, and Unpacked that of the files in the image.
	Size     int64    `json:"size"`
	Unpacked int64    `json:"unpacked"`
	SHA256   string   `json:"sha256"`
	Packages []string `json:"packages"`
	Images   []string `json:"images"`
}

// archiveFile is the result: what `docker load` reads.
const archiveFile = "node.tar"

// defaultEpoch is the time of files, unless SOURCE_DATE_EPOCH is set: 2025-01-01.
const defaultEpoch = 1735689600

type builder struct {
	Options
	mtime    time.Time
	work     string // scratch folder, removed at the end
	version  string // of Kubernetes
	pause    string // image that holds a pod's namespaces
	packages []debPackage
	summary  Summary
}

// Build makes the image. The result has its name only when it is complete.
func Build(ctx context.Context, o Options) (*Summary, error) {
	mtime, err := sbom.SourceDate(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), strconv.Itoa(defaultEpoch)))
	if err != nil {
		return nil, err
	}
	b := &builder{Options: o, mtime: mtime}
	if b.Log == nil {
		b.Log = func(string, ...any) {}
	}
	if err := os.MkdirAll(b.Output, 0o755); err != nil {
		return nil, err
	}
	if b.work, err = filepath.Abs(filepath.Join(b.Output, ".work")); err != nil { // beside the result: there is a gigabyte of it
		return nil, err
	}
	lock, err := b.lockFolder(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.ReleaseAndRemove()
	defer os.RemoveAll(b.work)
	return b.build(ctx)
}

// lockFolder waits until no other build runs there, and removes what a killed build
// left.
func (b *builder) lockFolder(ctx context.Context) (*statefile.Lock, error) {
	path := b.work + ".lock"
	lock, err := statefile.TryAcquire(path)
	if lock == nil && err == nil {
		b.Log("waiting for another build in %s", b.Output)
		lock, err = statefile.Acquire(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(b.work), os.Mkdir(b.work, 0o700)); err != nil {
		lock.Release()
		return nil, err
	}
	return lock, nil
}

func (b *builder) build(ctx context.Context) (*Summary, error) {
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"packages", b.getPackages},
		{"programs", b.buildPrograms},
		{"images of pods", b.podImages},
		{"node image", b.writeImage},
	}
	for _, s := range steps {
		began := time.Now()
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		b.Log("%s: %.0f s", s.name, time.Since(began).Seconds())
	}
	return &b.summary, nil
}

func (b *builder) getPackages(ctx context.Context) error {
	var names []string
	for line := range strings.Lines(definition.Packages) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			names = append(names, strings.TrimSpace(line))
		}
	}
	names = append(names, strings.Fields(definition.ProxyPackages)...)
	list, err := choose(ctx, names)
	if err != nil {
		return err
	}
	b.packages = list
	for _, p := range list {
		b.summary.Packages = append(b.summary.Packages, p.file)
	}
	return b.fetch(ctx, names, list)
}

func (b *builder) packageFile(p debPackage) string { return filepath.Join(b.Cache, "packages", p.file) }

func (b *builder) writeImage(ctx context.Context) error {
	b.Log("packing %d packages", len(b.packages))
	system, err := b.layer("system", func(t *tree) error { return errors.Join(t.system(), b.addPackages(ctx, t, b.packages)) })
	if err != nil {
		return err
	}
	own, err := b.layer("own", b.addOwn)
	if err != nil {
		return err
	}
	image, err := b.image(v1.Config{
		Entrypoint: []string{"/usr/local/bin/node-agent"}, StopSignal: "SIGTERM", WorkingDir: "/", Env: []string{"container=docker"},
		Labels: map[string]string{"org.opencontainers.image.title": "node", "org.opencontainers.image.version": b.version},
	}, system, own)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(b.Repository + ":" + b.version)
	if err != nil {
		return err
	}
	fresh := b.built(archiveFile)
	if err := writeArchive(fresh, map[name.Tag]v1.Image{tag: image}); err != nil {
		return err
	}
	b.summary.Image, b.summary.File = b.Repository+":"+b.version, filepath.Join(b.Output, archiveFile)
	return b.finish(fresh, "system", "own")
}

func (b *builder) finish(fresh string, layers ...string) error {
	for _, l := range layers {
		info, err := os.Stat(b.built(l + ".tar"))
		if err != nil {
			return err
		}
		b.summary.Unpacked += info.Size()
	}
	info, err := os.Stat(fresh)
	if err != nil {
		return err
	}
	b.summary.Size = info.Size()
	if b.summary.SHA256, err = wholefile.SHA256(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, b.summary.File)
}

func (b *builder) addOwn(t *tree) error {
	if err := b.addKube(t, kubePrograms); err != nil {
		return err
	}
	for _, name := range []string{"node-agent", "node-network"} {
		if err := t.copyIn("usr/local/bin/"+name, b.built(name), 0o755); err != nil {
			return err
		}
	}
	if err := t.copyIn("usr/local/lib/node/"+podArchive, b.built(podArchive), 0o644); err != nil {
		return err
	}
	const root = "files"
	return fs.WalkDir(definition.Files, root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(definition.Files, file)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if strings.HasPrefix(string(text), "#!") {
			mode = 0o755
		}
		content := strings.ReplaceAll(string(text), definition.PauseImage, b.pause)
		return t.file(strings.TrimPrefix(file, root+"/"), mode, []byte(content))
	})
}
