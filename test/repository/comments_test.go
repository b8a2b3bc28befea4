// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dialect are words of this project's that Go's readers do not expect: a
// function returns, and reports whether. Servers and people answer.
var dialect = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^\w+ answers (the|a|an|all|what|which|one|nil|how|why|those|whether|every)\b`), "returns"},
	{regexp.MustCompile(`\b(says|tells) whether\b`), "reports whether"},
}

func TestCommentsArePlain(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go":
			return nil
		}
		return checkComments(t, path)
	})
	if err != nil {
		t.Error(err)
	}
}

func checkComments(t *testing.T, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Doc == nil || f.Type.Results == nil {
			continue
		}
		for _, d := range dialect {
			if found := d.pattern.FindString(strings.Join(strings.Fields(f.Doc.Text()), " ")); found != "" {
				t.Errorf("%s: %s: %q; write %q", path, f.Name.Name, found, d.instead)
			}
		}
	}
	return nil
}
