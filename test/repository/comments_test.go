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

// dialect is a pattern of words that readers of Go and Kubernetes do not
// expect, and what they do expect.
type dialect struct {
	pattern *regexp.Regexp
	instead string
}

// ofFunctions are patterns in the comments of functions that return something:
// a function returns, and reports whether. Servers and people answer.
var ofFunctions = []dialect{
	{regexp.MustCompile(`^\w+ answers (the|a|an|all|what|which|one|nil|how|why|those|whether|every)\b`), "returns"},
	{regexp.MustCompile(`\b(says|tells) whether\b`), "reports whether"},
}

// ofTexts are patterns in all comments, and in all strings with a space.
var ofTexts = []dialect{
	{regexp.MustCompile(`(?i)(\w+ )?\b(is|was|are|were) no [a-z]+`), "is not a"},
	{regexp.MustCompile(`(?i)\b(tells?|told) of\b`), "reports, is called with"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bonce more\b`), "again"},
	{regexp.MustCompile(`(?i)\bbut for\b`), "except for"},
	{regexp.MustCompile(`(?i)\b(br(ing|ings|ought|inging) out|half[- ]made|in vain|by and by)\b`), "roll out, partly created, without result, gradually"},
	{regexp.MustCompile(`(?i)\bmade up for\b`), "written later, retried"},
	{regexp.MustCompile(`(?i)\bwould else\b`), "would otherwise"},
}

// usual are phrases of usual English that a pattern of ofTexts matches.
var usual = regexp.MustCompile(`(?i)^(there|still|here) |\bno (longer|more|such|fewer|less|smaller|larger|older|newer|better|earlier|later|other)$`)

func TestCommentsArePlain(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || name == "comments_test.go":
			return nil
		}
		return checkTexts(t, path)
	})
	if err != nil {
		t.Error(err)
	}
}

func checkTexts(t *testing.T, path string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	check := func(at token.Pos, text string, list []dialect) {
		text = strings.Join(strings.Fields(text), " ")
		for _, d := range list {
			for _, found := range d.pattern.FindAllString(text, -1) {
				if !usual.MatchString(found) {
					t.Errorf("%s: %q; write %q", files.Position(at), found, d.instead)
				}
			}
		}
	}
	for _, comment := range file.Comments {
		check(comment.Pos(), comment.Text(), ofTexts)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Doc != nil && n.Type.Results != nil {
				check(n.Pos(), n.Doc.Text(), ofFunctions)
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && strings.Contains(n.Value, " ") {
				check(n.Pos(), n.Value, ofTexts)
			}
		}
		return true
	})
	return nil
}
