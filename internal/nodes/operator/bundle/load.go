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
	"maps"
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

// Load reads a bundle out of a folder, and validates it as far as possible without a
// cluster's values.
func Load(name string, from fs.FS) (*Bundle, error) {
	b := &Bundle{Name: name}
	files, err := list(from)
	if err == nil {
		err = b.load(files, func(file string) (string, error) { return readFile(from, file) })
	}
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return b, nil
}

// LoadConfigMap reads a bundle out of a ConfigMap.
func LoadConfigMap(from *corev1.ConfigMap) (*Bundle, error) {
	b := &Bundle{Name: from.Name}
	if err := b.load(slices.Collect(maps.Keys(from.Data)), func(key string) (string, error) { return from.Data[key], nil }); err != nil {
		return nil, fmt.Errorf("bundle of ConfigMap %s/%s: %w", from.Namespace, from.Name, err)
	}
	return b, nil
}

// list returns the paths of a folder's files. Hidden ones are those of an editor, or of the
// mount of a ConfigMap.
func list(from fs.FS) (files []string, err error) {
	for _, folder := range append([]string{"."}, folders...) {
		entries, err := fs.ReadDir(from, folder)
		if err != nil && (folder == "." || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		for _, e := range entries {
			file := path.Join(folder, e.Name())
			if strings.HasPrefix(e.Name(), ".") || slices.Contains(folders, file) || folder == "." && strings.HasSuffix(file, ".md") {
				continue
			}
			files = append(files, file)
		}
	}
	return files, nil
}

func (b *Bundle) load(names []string, text func(name string) (string, error)) error {
	if !slices.Contains(names, MetadataFile) {
		return fmt.Errorf("%s: missing; it makes a folder or a ConfigMap a bundle", MetadataFile)
	}
	metadata, err := text(MetadataFile)
	if err != nil {
		return err
	}
	if b.Metadata, err = parseMetadata(metadata); err != nil {
		return err
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if name == MetadataFile {
			continue
		}
		f, ok := named(name)
		if !ok {
			return fmt.Errorf("%s: want %s or, in one of the folders %s, a file that ends in .yaml, .yml or .json, or in .tmpl after that", name, MetadataFile, strings.Join(folders, ", "))
		}
		if f.text, err = text(name); err != nil {
			return err
		}
		b.manifests = append(b.manifests, f)
	}
	slices.SortFunc(b.manifests, func(a, c file) int { return strings.Compare(a.path(), c.path()) })
	return b.check()
}

// named returns the file of a path. Keys of ConfigMaps have no slashes, so
// assets.deployment.yaml is assets/deployment.yaml, also where a ConfigMap is mounted.
func named(name string) (f file, ok bool) {
	at := strings.IndexAny(name, "/.")
	if at < 0 {
		return f, false
	}
	f = file{folder: name[:at], name: name[at+1:]}
	return f, slices.Contains(folders, f.folder) && manifest(f.name)
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
