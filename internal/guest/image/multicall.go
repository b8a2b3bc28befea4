// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// guestProgram is the one executable that holds all programs of the guest.
// They share the Go runtime and most packages: one file is a third of the size
// of four, and what one process has paged in (or, without KVM, had translated)
// serves the others. It looks at its own name to know which program to be.
const guestProgram = "podvm-guest"

// multicall is a generated main package, kept out of the source tree: the
// compiler sees it through an overlay.
type multicall struct {
	module  string            // folder of the module
	scratch string            // folder for the generated files
	overlay map[string]string // path in the module to generated file
}

// writeOverlay generates guestProgram from the main packages under cmd/ and
// returns the file for go build's -overlay.
func writeOverlay(module, scratch string) (string, error) {
	m := &multicall{module: module, scratch: scratch, overlay: map[string]string{}}
	for _, program := range guestPrograms() {
		if err := m.addProgram(program); err != nil {
			return "", fmt.Errorf("cmd/%s: %w", program, err)
		}
	}
	if err := m.addFile("main.go", dispatcher()); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": m.overlay})
	if err != nil {
		return "", err
	}
	name := filepath.Join(scratch, "overlay.json")
	return name, os.WriteFile(name, data, 0o600)
}

// addProgram adds a main package as a package of its own with Main for main.
func (m *multicall) addProgram(program string) error {
	dir := filepath.Join(m.module, "cmd", program)
	ctx := build.Default
	ctx.CgoEnabled, ctx.GOOS, ctx.GOARCH = false, "linux", "amd64"
	pkg, err := ctx.ImportDir(dir, 0)
	if err != nil {
		return err
	}
	for _, name := range pkg.GoFiles {
		src, err := asPackage(filepath.Join(dir, name), packageName(program))
		if err != nil {
			return err
		}
		if err := m.addFile(filepath.Join(packageName(program), name), src); err != nil {
			return err
		}
	}
	return nil
}

// asPackage renames the package and its function main.
func asPackage(file, name string) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	f.Name.Name = name
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "main" {
			fn.Name.Name = "Main"
		}
	}
	var out bytes.Buffer
	if err := format.Node(&out, fset, f); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (m *multicall) addFile(name string, src []byte) error {
	generated := filepath.Join(m.scratch, strings.ReplaceAll(name, string(filepath.Separator), "_"))
	m.overlay[filepath.Join(m.module, "cmd", guestProgram, name)] = generated
	return os.WriteFile(generated, src, 0o600)
}

// dispatcher returns the generated main function. It runs the agent for every unknown
// name, because the agent starts itself under names of its own.
func dispatcher() []byte {
	var imports, cases strings.Builder
	for _, p := range guestPrograms() {
		fmt.Fprintf(&imports, "\t%q\n", modulePath+"/cmd/"+guestProgram+"/"+packageName(p))
		name := p
		switch p {
		case agentProgram:
			continue
		case initProgram:
			name = imageInit
		}
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%s.Main()\n", name, packageName(p))
	}
	return fmt.Appendf(nil, `package main

import (
	"os"
	"path/filepath"

%s)

func main() {
	switch filepath.Base(os.Args[0]) {
%s	default:
		%s.Main()
	}
}
`, imports.String(), cases.String(), packageName(agentProgram))
}

func packageName(program string) string {
	return strings.ReplaceAll(program, "-", "")
}
