// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	_ "embed"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider/conformance"
)

//go:embed doc.go
var doc string

var update = flag.Bool("update", false, "write the list of checks in doc.go again")

// TestUpdateDocumentedChecks writes the list when it is told to.
func TestUpdateDocumentedChecks(t *testing.T) {
	if !*update {
		t.Skip("it writes doc.go: go test ./provider/conformance -run UpdateDocumentedChecks -update")
	}
	head, _, _ := strings.Cut(doc, "# Checks\n//\n")
	var list strings.Builder
	for _, check := range conformance.Checks() {
		line := "//   -"
		for _, word := range strings.Fields(check.Name + ": " + check.Contract) {
			if len(line)+1+len(word) > 80 {
				list.WriteString(line + "\n")
				line = "//    "
			}
			line += " " + word
		}
		list.WriteString(line + "\n")
	}
	text := head + "# Checks\n//\n" + list.String() + "package conformance\n"
	if err := os.WriteFile("doc.go", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedChecks keeps the list in doc.go, which people read, equal to
// the checks that run.
func TestDocumentedChecks(t *testing.T) {
	_, list, _ := strings.Cut(doc, "# Checks")
	list, _, _ = strings.Cut(list, "package conformance")
	list = regexp.MustCompile(`\s*//\s*`).ReplaceAllString(list, " ")
	var want []string
	for _, check := range conformance.Checks() {
		want = append(want, check.Name+": "+check.Contract)
	}
	got := strings.Split(strings.TrimPrefix(strings.TrimSpace(list), "- "), " - ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("doc.go lists other checks than Checks() (-want +got):\n%s", diff)
	}
}

func TestCheckNames(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[string]bool{}
	for _, check := range conformance.Checks() {
		if !name.MatchString(check.Name) || seen[check.Name] || !strings.HasSuffix(check.Contract, ".") {
			t.Errorf("check %q: bad or double name, or no sentence: %q", check.Name, check.Contract)
		}
		seen[check.Name] = true
	}
}
