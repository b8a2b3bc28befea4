// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// collectLicenses gathers the texts that whoever hands the programs on has to
// hand on with them: of the Go modules in one file, of each package of Debian
// in a file of its own.
func (b *builder) collectLicenses(ctx context.Context) error {
	modules, err := b.modules(ctx)
	if err != nil {
		return err
	}
	text, err := b.moduleLicenses(ctx, modules)
	if err != nil {
		return err
	}
	b.licenses = map[string][]byte{"go-modules.txt": text}
	if b.guest == nil {
		return nil
	}
	for _, p := range b.guest.Packages {
		text, err := p.Copyright()
		if err == nil {
			err = b.addDebianLicense(p.Name, text)
		}
		if err != nil {
			return err
		}
	}
	const busybox = "busybox-static"
	if text, err = os.ReadFile("/usr/share/doc/" + busybox + "/copyright"); err != nil {
		return err
	}
	return b.addDebianLicense(busybox, text)
}

// commonLicense is where Debian has the texts that many packages refer to.
var commonLicense = regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])`)

// addDebianLicense adds a package's copyright file, and the texts that it
// refers to.
func (b *builder) addDebianLicense(name string, text []byte) error {
	b.licenses["debian-"+name+".txt"] = text
	for _, m := range commonLicense.FindAllSubmatch(text, -1) {
		common, err := os.ReadFile(string(m[0]))
		if err != nil {
			return fmt.Errorf("licence of %s: %w", name, err)
		}
		b.licenses[string(m[1])+".txt"] = common
	}
	return nil
}

// modules returns the paths of the modules that are linked into the programs.
func (b *builder) modules(ctx context.Context) ([]string, error) {
	all := map[string]bool{}
	programs, err := filepath.Glob(filepath.Join(b.programs("*"), "*"))
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		addModules(all, info)
	}
	if b.guest != nil {
		info, err := buildinfo.Read(bytes.NewReader(b.guest.Program))
		if err != nil {
			return nil, err
		}
		addModules(all, info)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

func addModules(all map[string]bool, info *buildinfo.BuildInfo) {
	for _, m := range info.Deps {
		all[m.Path] = true
	}
}

// licenseName matches the files that a module's licence is in.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)`)

func (b *builder) moduleLicenses(ctx context.Context, modules []string) ([]byte, error) {
	out, err := b.run(ctx, nil, "go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}, modules...)...)
	if err != nil {
		return nil, err
	}
	goroot, err := b.run(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, line := range append([]string{"The Go standard library\t" + strings.TrimSpace(string(goroot))}, strings.Split(strings.TrimSpace(string(out)), "\n")...) {
		name, dir, _ := strings.Cut(line, "\t")
		if err := addModuleLicense(&text, name, dir); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// addModuleLicense adds the files of a module's top folder.
func addModuleLicense(text *bytes.Buffer, name, dir string) error {
	found := false
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("licence of %s: %w", name, err)
	}
	for _, e := range entries {
		if e.IsDir() || !licenseName.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "==== %s: %s ====\n\n%s\n\n", name, e.Name(), bytes.TrimSpace(content))
	}
	if !found {
		return fmt.Errorf("licence of %s: %w: there is no such file in %s", name, fs.ErrNotExist, dir)
	}
	return nil
}
