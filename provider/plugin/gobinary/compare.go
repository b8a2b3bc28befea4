// SPDX-License-Identifier: Apache-2.0

package gobinary

import (
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

// Difference is one thing in which two binaries differ.
type Difference struct {
	// Text says what differs and what to do.
	Text string
	// Fatal differences keep every plugin from loading. The others do so only
	// when they change a package that both sides have.
	Fatal bool
}

// Static is the difference of a host that cannot load any plugin.
var Static = Difference{
	"this program is static (CGO_ENABLED=0) and cannot load Go plugins: build the daemon with CGO_ENABLED=1, or use the process plugin from the same source", true,
}

// Compare returns the differences, the most important first.
func Compare(host, plugin Side) []Difference {
	var all []Difference
	add := func(fatal bool, format string, args ...any) {
		all = append(all, Difference{fmt.Sprintf(format, args...), fatal})
	}
	if mode := plugin.setting("-buildmode"); mode != "plugin" {
		add(true, "the file was built with -buildmode=%s: build it with -buildmode=plugin, or name it without .so if it is a process plugin", mode)
		return all
	}
	all = append(all, platform(host, plugin)...)
	if host.setting("CGO_ENABLED") == "0" {
		all = append(all, Static)
	}
	if host.GoVersion != plugin.GoVersion {
		add(true, "this program was built with %s and the plugin with %s: build the plugin with GOTOOLCHAIN=%s", host.GoVersion, plugin.GoVersion, firstWord(host.GoVersion))
	}
	all = append(all, flags(host, plugin)...)
	if text := sourcePaths(host, plugin); text != "" {
		add(true, "%s", text)
	}
	if text := firstModule(host, plugin); text != "" {
		add(true, "%s", text)
	}
	slices.SortStableFunc(all, func(a, b Difference) int { return rank(a) - rank(b) })
	return all
}

func rank(d Difference) int {
	if d.Fatal {
		return 0
	}
	return 1
}

// firstWord cuts the experiments off, as in "go1.26.8 X:boringcrypto".
func firstWord(version string) string {
	word, _, _ := strings.Cut(version, " ")
	return word
}

func platform(host, plugin Side) []Difference {
	var all []Difference
	for _, key := range []string{"GOOS", "GOARCH"} {
		h, p := host.setting(key), plugin.setting(key)
		if h != p {
			all = append(all, Difference{fmt.Sprintf("this program is for %s=%s and the plugin for %s: build the plugin with %[1]s=%[2]s", key, h, p), true})
		}
	}
	return all
}

// compared are the settings of a build that reach the compiler. A difference
// in the fatal ones changes the runtime package itself.
var compared = []struct {
	key   string
	fatal bool
}{
	{"-trimpath", true}, {"-race", true}, {"-msan", true}, {"-asan", true}, {"GOEXPERIMENT", true}, {"-compiler", true},
	{"-tags", false}, {"-gcflags", false}, {"-asmflags", false}, {"-cover", false}, {"-pgo", false}, {"GOFIPS140", false},
	{"GOAMD64", false}, {"GOARM64", false}, {"GOPPC64", false}, {"GORISCV64", false},
}

func flags(host, plugin Side) []Difference {
	var all []Difference
	for _, c := range compared {
		h, p := host.setting(c.key), plugin.setting(c.key)
		if h != p && !emptyBool(h, p) {
			all = append(all, Difference{flagText(c.key, h, p), c.fatal})
		}
	}
	return all
}

// emptyBool: false and not given are the same.
func emptyBool(h, p string) bool {
	return (h == "" || h == "false") && (p == "" || p == "false")
}

func flagText(key, host, plugin string) string {
	if host == "true" || plugin == "true" { // a switch
		if host == "true" {
			return fmt.Sprintf("this program was built with %s and the plugin without: build the plugin with %[1]s", key)
		}
		return fmt.Sprintf("the plugin was built with %s and this program without: build the plugin without %[1]s", key)
	}
	switch {
	case host == "":
		return fmt.Sprintf("the plugin was built with %s=%s and this program without: build the plugin without it", key, plugin)
	case plugin == "":
		return fmt.Sprintf("this program was built with %s=%s and the plugin without: build the plugin with it", key, host)
	}
	return fmt.Sprintf("this program was built with %s=%s and the plugin with %[1]s=%[3]s: build the plugin with %[1]s=%[2]s", key, host, plugin)
}

// sourcePaths compares where the compiler saw our module.
func sourcePaths(host, plugin Side) string {
	if host.Sources == "" || plugin.Sources == "" || host.Sources == plugin.Sources {
		return ""
	}
	h, p := root(host.Sources), root(plugin.Sources)
	if host.setting("-trimpath") != plugin.setting("-trimpath") { // that alone changes the paths
		if h == module {
			return "with -trimpath, both must also be built " + workspace
		}
		return ""
	}
	what := fmt.Sprintf("this program was built from the sources %s and the plugin from %s, which are different packages to Go", h, p)
	if host.setting("-trimpath") == "true" && plugin.setting("-trimpath") == "true" {
		return what + ": with -trimpath a main module has no version in its path and a required module has one, so build both " + workspace
	}
	return what + ": build both from one folder of " + module + " (a replace line in the plugin's go.mod, or one go.work workspace)"
}

const workspace = "in one go.work workspace that lists " + module + " and the plugin's module"

func root(file string) string { return path.Dir(path.Dir(file)) }

// firstModule returns the first module, by path, that differs.
func firstModule(host, plugin Side) string {
	mine := host.modules()
	for _, theirs := range slices.SortedFunc(slices.Values(plugin.Deps), func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) }) {
		own := mine[theirs.Path]
		if own == nil || theirs.Path == module { // the sources' paths tell better
			continue
		}
		if h, p := versionOf(own), versionOf(theirs); h != p && h != "" && p != "" {
			return fmt.Sprintf("this program has %s %s and the plugin %s: in the plugin's module run: go get %s", theirs.Path, h, p, getOf(own))
		}
	}
	return ""
}

// versionOf returns which text of a module was used; empty when that cannot be
// compared, as with a folder, whose path may be relative.
func versionOf(m *debug.Module) string {
	if m.Replace == nil {
		return known(m.Version)
	}
	if v := known(m.Replace.Version); v != "" {
		return m.Replace.Path + " " + v
	}
	return ""
}

func known(version string) string {
	if version == "(devel)" {
		return ""
	}
	return version
}

// getOf returns the argument of go get, or of go mod edit for a replaced module.
func getOf(m *debug.Module) string {
	if m.Replace != nil {
		return fmt.Sprintf("%s@%s && go mod edit -replace %[1]s=%s@%s", m.Path, m.Version, m.Replace.Path, m.Replace.Version)
	}
	return m.Path + "@" + m.Version
}

// Refuse returns why the plugin cannot load, nil when it may.
func Refuse(host, plugin Side) error {
	all := Compare(host, plugin)
	if !slices.ContainsFunc(all, func(d Difference) bool { return d.Fatal }) {
		return nil
	}
	return errors.New(sentences(all) + "; " + otherwise)
}

const otherwise = "or use the process plugin from the same source, which needs no matching build"

func sentences(all []Difference) string {
	var texts []string
	for _, d := range all {
		texts = append(texts, d.Text)
	}
	return strings.Join(texts, "; ")
}

// Advice returns what may be behind a refusal of the runtime, whose message
// is given, such as "plugin was built with a different version of package X".
func Advice(host, plugin Side, message string) string {
	var texts []string
	if _, name, ok := strings.Cut(message, "different version of package "); ok {
		texts = append(texts, packageText(host, plugin, strings.TrimSpace(name)))
	}
	if all := Compare(host, plugin); len(all) > 0 {
		texts = append(texts, sentences(all))
	}
	return strings.Join(append(texts, otherwise), "; ")
}

// packageText returns which module holds a package, and its version on both
// sides.
func packageText(host, plugin Side, name string) string {
	h, p := holder(host, name), holder(plugin, name)
	if h == nil && p == nil {
		if !strings.Contains(strings.Split(name, "/")[0], ".") {
			return "package " + name + " is of the Go distribution, so the toolchain or a flag of the compiler differs"
		}
		return "package " + name + " is of a main module"
	}
	if describe(h) == describe(p) {
		return fmt.Sprintf("package %s is of module %s, which both have as %s, so a tag or a flag of the compiler differs", name, h.Path, describe(h))
	}
	return fmt.Sprintf("package %s is of module %s: this program has %s, the plugin %s", name, either(h, p).Path, describe(h), describe(p))
}

func either(a, b *debug.Module) *debug.Module {
	if a != nil {
		return a
	}
	return b
}

// holder returns the module with the longest path that the package is below.
func holder(s Side, name string) *debug.Module {
	var module *debug.Module
	for _, m := range append(slices.Clone(s.Deps), &s.Main) {
		if name != m.Path && !strings.HasPrefix(name, m.Path+"/") || m.Path == "" {
			continue
		}
		if module == nil || len(m.Path) > len(module.Path) {
			module = m
		}
	}
	return module
}

func describe(m *debug.Module) string {
	switch {
	case m == nil:
		return "none of it"
	case m.Replace != nil:
		return strings.TrimSpace(m.Replace.Path + " " + m.Replace.Version)
	}
	return m.Version
}
