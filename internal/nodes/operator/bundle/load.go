// SPDX-License-Identifier: Apache-2.0

// Package bundle makes the objects of a platform's cloud controller manager out
// of a folder of data, so that a new platform needs no code. docs/ccm-operator.md
// describes the folder, and what becomes of its manifests.
//
// A manifest with [BaseAnnotation] is merged into that base: a Deployment, DaemonSet or
// static Pod of the folder bases, which keep all rules of operands. What each platform
// gets besides is in the folder added. [Bundle.Render] reads nothing but its arguments,
// and returns new objects each time.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
)

// Folders of a bundle.
const (
	assets    = "assets"
	bootstrap = "bootstrap"
)

var folders = []string{assets, string(OpenShift), string(Kubernetes), bootstrap}

// maxFile bounds a file, as etcd bounds an object.
const maxFile = 1 << 20

// Bundle is a bundle that has been read. It is immutable.
type Bundle struct {
	Metadata
	// Name is the name of the folder or the ConfigMap, for messages.
	Name      string
	manifests []file
}

// file is a manifest or a template of one.
type file struct{ folder, name, text string }

func (f file) path() string { return path.Join(f.folder, f.name) }

// source says, for messages, where an object of the file comes from.
func (f file) source() string {
	if f.ours() {
		return "what each platform gets"
	}
	return f.path()
}

// ours reports whether the file is one that this package adds to each bundle.
func (f file) ours() bool { return strings.HasPrefix(f.folder, "added") }

// Load reads a bundle and validates it as far as possible without a cluster's
// values.
func Load(name string, from fs.FS) (*Bundle, error) {
	b := &Bundle{Name: name}
	if err := b.load(from); err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return b, nil
}

func (b *Bundle) load(from fs.FS) error {
	text, err := readFile(from, MetadataFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: missing; it makes a folder a bundle", MetadataFile)
	}
	if err != nil {
		return err
	}
	if b.Metadata, err = parseMetadata(text); err != nil {
		return err
	}
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == MetadataFile || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".md") {
			continue
		}
		if err := b.readEntry(from, e.Name()); err != nil {
			return err
		}
	}
	return b.check()
}

// readEntry reads a folder, or a file whose name has the form of a ConfigMap's key: a
// mounted ConfigMap is a bundle, too.
func (b *Bundle) readEntry(from fs.FS, name string) (err error) {
	if slices.Contains(folders, name) {
		return b.readFolder(from, name)
	}
	f, ok := ofKey(name)
	if !ok {
		return fmt.Errorf("%s: neither %s nor one of the folders %s", name, MetadataFile, strings.Join(folders, ", "))
	}
	f.text, err = readFile(from, name)
	b.manifests = append(b.manifests, f)
	return err
}

// ofKey reads assets.deployment.yaml as assets/deployment.yaml.
func ofKey(key string) (file, bool) {
	folder, name, _ := strings.Cut(key, ".")
	return file{folder: folder, name: name}, slices.Contains(folders, folder) && manifest(name)
}

func (b *Bundle) readFolder(from fs.FS, folder string) error {
	entries, err := fs.ReadDir(from, folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f := file{folder: folder, name: e.Name()}
		if strings.HasPrefix(f.name, ".") {
			continue // a file of an editor, or of the mount of a ConfigMap
		}
		if !manifest(f.name) {
			return fmt.Errorf("%s: want a file that ends in .yaml, .yml or .json, or in .tmpl after that", f.path())
		}
		if f.text, err = readFile(from, f.path()); err != nil {
			return err
		}
		b.manifests = append(b.manifests, f)
	}
	return nil
}

func manifest(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(strings.TrimSuffix(name, ".tmpl")))
}

func readFile(from fs.FS, name string) (string, error) {
	info, err := fs.Stat(from, name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", name)
	}
	if info.Size() > maxFile {
		return "", fmt.Errorf("%s: %d bytes; want at most %d", name, info.Size(), maxFile)
	}
	text, err := fs.ReadFile(from, name)
	if err == nil && !utf8.Valid(text) {
		err = fmt.Errorf("%s: not UTF-8 text", name)
	}
	return string(text), err
}

// check returns the errors that do not depend on a cluster's values.
func (b *Bundle) check() error {
	if !slices.ContainsFunc(b.manifests, func(f file) bool { return f.folder != bootstrap }) {
		return fmt.Errorf("%s: no manifests; at least one Deployment or DaemonSet is wanted", assets)
	}
	var faults failure.Faults
	for _, f := range b.manifests {
		_, err := parseFile(f)
		faults.AddIf(err != nil, "%s: %w", f.path(), err)
	}
	for name, c := range b.Containers {
		for key, flags := range map[string][]string{"flags": c.Flags, "openshift.flags": c.OpenShift.Flags} {
			for i, flag := range flags {
				_, err := parse(flag)
				faults.AddIf(err != nil, "%s: containers.%s.%s[%d]: %w", MetadataFile, name, key, i, err)
			}
		}
	}
	return errors.Join(faults...)
}

// LoadConfigMap reads a bundle out of a ConfigMap. Keys have no slashes:
// assets.deployment.yaml is assets/deployment.yaml.
func LoadConfigMap(from *corev1.ConfigMap) (*Bundle, error) {
	b := &Bundle{Name: from.Name}
	if err := b.loadConfigMap(from); err != nil {
		return nil, fmt.Errorf("bundle of ConfigMap %s/%s: %w", from.Namespace, from.Name, err)
	}
	return b, nil
}

func (b *Bundle) loadConfigMap(from *corev1.ConfigMap) error {
	text, has := from.Data[MetadataFile]
	if !has {
		return fmt.Errorf("key %s: missing; it makes a ConfigMap a bundle", MetadataFile)
	}
	var err error
	if b.Metadata, err = parseMetadata(text); err != nil {
		return err
	}
	for key, text := range from.Data {
		if key == MetadataFile {
			continue
		}
		f, ok := ofKey(key)
		if !ok {
			return fmt.Errorf("key %s: want %s, or one of %s, a dot, and the name of a .yaml file", key, MetadataFile, strings.Join(folders, ", "))
		}
		f.text = text
		b.manifests = append(b.manifests, f)
	}
	slices.SortFunc(b.manifests, func(a, c file) int { return strings.Compare(a.path(), c.path()) })
	return b.check()
}

// Files returns the paths of the bundle's manifests.
func (b *Bundle) Files() []string {
	var names []string
	for _, f := range b.manifests {
		names = append(names, f.path())
	}
	return names
}

// HasBootstrap reports whether there is anything in bootstrap/.
func (b *Bundle) HasBootstrap() bool {
	return slices.ContainsFunc(b.manifests, func(f file) bool { return f.folder == bootstrap })
}

// Set are bundles among which a cluster finds its own.
type Set []*Bundle

// LoadSet reads each folder of a folder as a bundle.
func LoadSet(from fs.FS) (Set, error) {
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return nil, err
	}
	var set Set
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		sub, err := fs.Sub(from, e.Name())
		if err != nil {
			return nil, err
		}
		b, err := Load(e.Name(), sub)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set = append(set, b)
	}
	return set, errors.Join(append(errs, set.check())...)
}

// check finds bundles between which nothing decides.
func (s Set) check() error {
	seen := map[string]string{}
	var faults failure.Faults
	for _, b := range s {
		key := strings.ToLower(b.Platform) + "/" + b.CloudName
		other, twice := seen[key]
		faults.AddIf(twice, "bundles %s and %s are both for platform %s, cloud name %q", other, b.Name, b.Platform, b.CloudName)
		seen[key] = b.Name
	}
	return errors.Join(faults...)
}

// Find returns the bundle of a platform, or nil: the platform has no cloud
// controller manager, or none in this flavor. Case does not matter.
func (s Set) Find(platform, cloudName string, flavor Flavor) *Bundle {
	var match *Bundle
	for _, b := range s {
		switch {
		case !strings.EqualFold(b.Platform, platform) || !b.For(flavor):
		case b.CloudName == "" && match == nil, b.CloudName != "" && strings.EqualFold(b.CloudName, cloudName):
			match = b
		}
	}
	return match
}

// Named returns the bundle of that name, or else of a platform of that name.
func (s Set) Named(name string) (*Bundle, error) {
	for _, b := range s {
		if strings.EqualFold(b.Name, name) {
			return b, nil
		}
	}
	for _, b := range s {
		if strings.EqualFold(b.Platform, name) && b.CloudName == "" {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no bundle is named %q; there are %s", name, strings.Join(s.Names(), ", "))
}

// Names returns the bundles' names, sorted.
func (s Set) Names() []string {
	var names []string
	for _, b := range s {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

// With returns the set with further bundles, each in place of the one of the
// same platform and cloud name, if there is one.
func (s Set) With(more ...*Bundle) Set {
	all := slices.Clone(s)
	for _, b := range more {
		all = slices.DeleteFunc(all, func(o *Bundle) bool {
			return strings.EqualFold(o.Platform, b.Platform) && o.CloudName == b.CloudName
		})
		all = append(all, b)
	}
	return all
}
