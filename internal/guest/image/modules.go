// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// stages returns the stages of modules.list and of the image's /modules.order, in
// load order.
func stages() []string {
	return append([]string{"early", "storage", "start", "late", "demand"}, seldom...)
}

// seldom are the stages whose modules most VMs never load: they are compressed, since each VM has the initramfs in memory.
var seldom = []string{"asked", stageCloud, stageTEE}

// stageCloud is the stage of modules that are loaded only if the VM has their device;
// see modules.list.
const stageCloud = "cloud"

// stageTEE is the stage of modules by which a processor vouches for the VM. They are loaded only where it can, and are
// in confidential images alone.
const stageTEE = "tee"

// wantedModule is one line of modules.list.
type wantedModule struct {
	stage, name string
}

// parseModuleList reads modules.list.
func parseModuleList(text string) ([]wantedModule, error) {
	var list []wantedModule
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 || !slices.Contains(stages(), f[0]) {
			return nil, fmt.Errorf("modules.list line %d: want STAGE NAME, STAGE one of %s", i+1, strings.Join(stages(), ", "))
		}
		list = append(list, wantedModule{stage: f[0], name: f[1]})
	}
	return list, nil
}

// moduleTree is what depmod knows about one kernel's modules.
type moduleTree struct {
	dir     string              // lib/modules/VERSION
	paths   map[string]string   // name to path below dir
	deps    map[string][]string // path to paths, nearest first
	builtin map[string]bool
	aliases string // modules.alias: "alias PATTERN MODULE" lines
}

// openModules reads modules.dep, modules.builtin and modules.alias of
// root/lib/modules/version. If there is no modules.dep it runs depmod first.
func openModules(ctx context.Context, root, version string) (*moduleTree, error) {
	dir := filepath.Join(root, "lib/modules", version)
	if _, err := os.Stat(filepath.Join(dir, "modules.dep")); errors.Is(err, fs.ErrNotExist) {
		if _, err := runTool(ctx, "", "kmod", "depmod", "-b", root, version); err != nil {
			return nil, err
		}
	}
	var dep, builtin, aliases []byte
	for name, to := range map[string]*[]byte{"modules.dep": &dep, "modules.builtin": &builtin, "modules.alias": &aliases} {
		var err error
		if *to, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("kernel modules: %w", err)
		}
	}
	t := &moduleTree{dir: dir, builtin: map[string]bool{}, aliases: string(aliases)}
	for file := range bytes.FieldsSeq(builtin) {
		t.builtin[moduleName(string(file))] = true
	}
	var err error
	t.paths, t.deps, err = parseDep(string(dep))
	return t, err
}

// moduleName returns the kernel's name of the module in a file: without suffixes, and
// with _ for -.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

func parseDep(text string) (paths map[string]string, deps map[string][]string, err error) {
	paths, deps = map[string]string{}, map[string][]string{}
	for line := range strings.Lines(text) {
		file, rest, ok := strings.Cut(line, ":")
		if !ok {
			return nil, nil, fmt.Errorf("modules.dep: no colon in %q", line)
		}
		paths[moduleName(file)] = file
		deps[file] = strings.Fields(rest)
	}
	return paths, deps, nil
}

// closure lists the files to load for one module, dependencies first. A module
// that is built in needs none.
func (t *moduleTree) closure(name string) ([]string, error) {
	name = moduleName(name)
	if t.builtin[name] {
		return nil, nil
	}
	file, ok := t.paths[name]
	if !ok {
		return nil, fmt.Errorf("kernel module %s is neither in %s nor built in", name, t.dir)
	}
	var list []string
	seen := map[string]bool{}
	var visit func(string)
	visit = func(f string) {
		if seen[f] {
			return
		}
		seen[f] = true
		for _, d := range t.deps[f] {
			visit(d)
		}
		list = append(list, f)
	}
	visit(file)
	return list, nil
}

// loadOrder returns the content of /modules.order, lines of "STAGE FILE
// DEPENDENCY...", and the files in it by their name in /modules.
func (t *moduleTree) loadOrder(wanted []wantedModule) (order string, files map[string]moduleFile, err error) {
	var b strings.Builder
	files = map[string]moduleFile{}
	for _, stage := range stages() {
		for _, w := range wanted {
			if w.stage != stage {
				continue
			}
			list, err := t.closure(w.name)
			if err != nil {
				return "", nil, err
			}
			for _, f := range list {
				base := imageName(f)
				if files[base].path == "" {
					files[base] = moduleFile{filepath.Join(t.dir, f), slices.Contains(seldom, stage)}
					fmt.Fprintf(&b, "%s %s\n", stage, strings.Join(t.withDeps(f), " "))
				}
			}
		}
	}
	return b.String(), files, nil
}

// moduleFile is a file of the kernel's package.
type moduleFile struct {
	path     string
	compress bool
}

// content returns what the image has of it.
func (f moduleFile) content() ([]byte, error) {
	data, err := os.ReadFile(f.path)
	if err == nil && strings.HasSuffix(f.path, compressedModule) {
		data, err = unpackXZ(data)
	}
	if err != nil {
		return nil, err
	}
	if data = stripSignature(data); !f.compress {
		return data, nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
		err = cmp.Or(err, w.Close())
	}
	return b.Bytes(), err
}

// withDeps returns the base names of a module and then of its dependencies, these in
// load order.
func (t *moduleTree) withDeps(file string) []string {
	list, _ := t.closure(moduleName(file))
	names := []string{imageName(file)}
	for _, f := range list[:max(len(list)-1, 0)] {
		names = append(names, imageName(f))
	}
	return names
}

// compressedModule ends the files of modules that are compressed, as those of Debian's kernels after 6.1 are.
const compressedModule = ".xz"

// imageName returns the name in /modules of a file of the kernel's package.
func imageName(file string) string {
	return strings.TrimSuffix(path.Base(file), compressedModule)
}

// aliasLines returns the content of /modules.alias, lines of "PATTERN NAME" for the
// modules in the image. The stages load the drivers of most devices. Aliases are
// needed only for the kernel's own requests, which have no bus prefix, and for the
// modules of stageCloud and stageTEE.
func (t *moduleTree) aliasLines(files map[string]moduleFile, wanted []wantedModule) string {
	have, byDevice := map[string]bool{}, map[string]bool{}
	for base := range files {
		have[moduleName(base)] = true
	}
	for _, w := range wanted {
		byDevice[moduleName(w.name)] = w.stage == stageCloud || w.stage == stageTEE
	}
	var b strings.Builder
	for line := range strings.Lines(t.aliases) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "alias" && have[f[2]] && (byDevice[f[2]] || !strings.Contains(f[1], ":")) {
			fmt.Fprintf(&b, "%s %s\n", f[1], f[2])
		}
	}
	return b.String()
}

// moduleSigMagic ends a signed module (scripts/sign-file.c). It follows struct
// module_signature, of moduleSigInfo bytes, whose last four are the length of the
// signature.
const (
	moduleSigMagic = "~Module signature appended~\n"
	moduleSigInfo  = 12
)

// stripSignature returns a module without its signature: checking it takes time, and
// a kernel that does not enforce signatures does not need it.
func stripSignature(module []byte) []byte {
	body, ok := bytes.CutSuffix(module, []byte(moduleSigMagic))
	if !ok || len(body) < moduleSigInfo {
		return module
	}
	sigLen := int(binary.BigEndian.Uint32(body[len(body)-4:]))
	end := len(body) - moduleSigInfo - sigLen
	if end <= 0 {
		return module
	}
	return body[:end]
}
