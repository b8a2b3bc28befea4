// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

// TestClassesAreAll counts what the file declares: a class that is not on the
// list would be an unknown error to everybody.
func TestClassesAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			declared += len(spec.Names)
		}
		return true
	})
	if all := provider.Classes(); len(all) != declared || declared == 0 {
		t.Errorf("errors.go declares %d classes, Classes answers %d", declared, len(all))
	}
	for _, class := range provider.Classes() {
		if provider.Class(class) != class {
			t.Errorf("the class of %q is %q", class, provider.Class(class))
		}
	}
}
