// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Tables of containerd's CRI plugin by the version of the configuration file,
// not that of containerd: 2.x reads files of version 2 as well.
const (
	criVersion2 = "io.containerd.grpc.v1.cri"
	criVersion3 = "io.containerd.cri.v1.runtime"
)

// file is one of containerd's configuration files, as far as it matters here.
type file struct {
	path string // below the root
	text string // empty if the file does not exist

	Version  int            `toml:"version"`
	Imports  []string       `toml:"imports"`
	Disabled []string       `toml:"disabled_plugins"`
	Plugins  map[string]any `toml:"plugins"`
}

func parse(path, text string) (*file, error) {
	f := &file{path: path, text: text}
	if err := toml.Unmarshal([]byte(text), f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// cri returns the name of the table of the CRI plugin.
func (f *file) cri() string {
	if f.Version >= 3 {
		return criVersion3
	}
	return criVersion2
}

// runtimes returns the file's runtime handlers.
func (f *file) runtimes() map[string]any {
	table := f.Plugins
	for _, key := range []string{f.cri(), "containerd", "runtimes"} {
		table, _ = table[key].(map[string]any)
	}
	return table
}

// runtime returns the file's table of a handler; nil if it has none.
func (f *file) runtime(handler string) map[string]any {
	table, _ := f.runtimes()[handler].(map[string]any)
	return table
}

// check returns an error if a handler cannot be added to the file.
func (f *file) check() error {
	if f.text != "" && f.Version < 2 {
		return fmt.Errorf("%s has no version, which is version 1: convert it with `containerd config migrate`", f.path)
	}
	for _, plugin := range f.Disabled {
		if plugin == "cri" || plugin == criVersion2 || plugin == criVersion3 {
			return fmt.Errorf("%s disables plugin %s, without which containerd runs no pods: remove it from disabled_plugins", f.path, plugin)
		}
	}
	return nil
}

// files returns the node's configuration: the main file and what it imports.
func (i *Installer) files() ([]*file, error) {
	main, err := i.read(i.Config)
	if err != nil {
		return nil, err
	}
	all := []*file{main}
	for _, pattern := range main.Imports { // without the file, containerd's default imports take no effect
		if !filepath.IsAbs(pattern) && strings.Contains(pattern, "*") {
			continue // containerd 1 finds no file by such a pattern, and 2 merges the tables
		}
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(i.Config), pattern)
		}
		paths, err := filepath.Glob(filepath.Join(i.Root, pattern))
		if err != nil {
			return nil, fmt.Errorf("%s: imports %q: %w", i.Config, pattern, err)
		}
		for _, path := range paths {
			file, err := i.read("/" + strings.TrimLeft(strings.TrimPrefix(path, filepath.Clean(i.Root)), "/"))
			if err != nil {
				return nil, err
			}
			all = append(all, file)
		}
	}
	return all, nil
}

// target returns the file to which a handler is added: the last imported file that
// configures the CRI plugin, or else the main file. In containerd 1 an imported file
// replaces the whole table of a plugin.
func target(files []*file) (*file, error) {
	target := files[0]
	for _, file := range files[1:] {
		if file.Plugins[criVersion2] != nil || file.Plugins[criVersion3] != nil {
			target = file
		}
	}
	if target.text == "" {
		target.Version = 2 // both containerd 1 and 2 read it
	}
	return target, errors.Join(files[0].check(), target.check())
}

// read returns a file of the node; a missing file counts as empty.
func (i *Installer) read(path string) (*file, error) {
	text, err := os.ReadFile(i.path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return parse(path, string(text))
}

// begin and end return the lines around our part of the file. Everything else in it
// is left alone.
func (i *Installer) begin() string {
	return "# BEGIN runtime handler " + i.Handler + ", kept by Outrigger's node-installer"
}

func (i *Installer) end() string { return "# END runtime handler " + i.Handler }

// head returns the beginning of a file that we create.
func (i *Installer) head(f *file) string {
	return fmt.Sprintf("# Made by Outrigger's node-installer.\nversion = %d\n", f.Version)
}

// block returns the lines that define the handler. runc adds the handler runc:
// containerd 1 has it by default, but only while its configuration names none.
func (i *Installer) block(cri string, runc bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", i.begin())
	if runc {
		fmt.Fprintf(&b, "[plugins.%q.containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n", cri)
	}
	table := fmt.Sprintf("plugins.%q.containerd.runtimes.%q", cri, i.Handler)
	fmt.Fprintf(&b, "[%s]\n", table)
	fmt.Fprintf(&b, "  runtime_type = %q\n", runtimeType)
	if !slices.Contains(inPath, i.Bin) {
		fmt.Fprintf(&b, "  runtime_path = %q\n", filepath.Join(i.Bin, shimName))
	}
	b.WriteString("  privileged_without_host_devices = true\n")
	b.WriteString("  pod_annotations = [\"io.katacontainers.*\", \"outrigger.dev/*\"]\n")
	if i.ShimConfig != "" {
		fmt.Fprintf(&b, "  [%s.options]\n    ConfigPath = %q\n", table, i.ShimConfig)
	}
	fmt.Fprintf(&b, "%s\n", i.end())
	return b.String()
}

// inPath are the folders in which a service finds programs by name.
var inPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// withoutHandler returns the file's text without our part.
func (i *Installer) withoutHandler(f *file) (string, error) {
	before, rest, found := strings.Cut(f.text, i.begin()+"\n")
	if !found {
		return f.text, nil
	}
	_, after, found := strings.Cut(rest, i.end()+"\n")
	if !found {
		return "", fmt.Errorf("%s: the line %q is there and %q is not: remove what is between by hand", f.path, i.begin(), i.end())
	}
	if before == i.head(f)+"\n" && after == "" {
		return "", nil // we created the file
	}
	return strings.TrimSuffix(before, "\n") + after, nil
}

// withHandler returns the file's text with the handler in it.
func (i *Installer) withHandler(f *file) (string, error) {
	rest, err := i.withoutHandler(f)
	if err != nil {
		return "", err
	}
	other, err := parse(f.path, rest)
	if err != nil {
		return "", err
	}
	block := i.block(f.cri(), f.Version == 2 && len(other.runtimes()) == 0)
	wanted, err := parse(f.path, fmt.Sprintf("version = %d\n%s", f.Version, block))
	if err != nil {
		return "", err
	}
	if existing := other.runtime(i.Handler); existing != nil {
		if reflect.DeepEqual(existing, wanted.runtime(i.Handler)) {
			return rest, nil // somebody else defined the same handler
		}
		return "", fmt.Errorf("%s has a runtime handler %s already, of type %v: remove it, or choose another name with -handler and in the RuntimeClass", f.path, i.Handler, existing["runtime_type"])
	}
	switch {
	case rest == "":
		rest = i.head(f)
	case !strings.HasSuffix(rest, "\n"):
		rest += "\n"
	}
	text := rest + "\n" + block
	if _, err := parse(f.path, text); err != nil {
		return "", fmt.Errorf("with the handler added: %w; add it by hand, see docs/shim.md", err)
	}
	return text, nil
}
