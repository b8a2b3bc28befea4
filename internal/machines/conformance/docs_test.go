// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/machines/conformance"
)

const page, mark = "../../../docs/capi-conformance.md", "-update -->\n\n"

var update = flag.Bool("update", false, "write the table of checks in docs/capi-conformance.md again")

func table() string {
	var b strings.Builder
	b.WriteString("| check | promise |\n|---|---|\n")
	for _, check := range conformance.Checks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", check.Name, check.Contract)
	}
	return b.String()
}

// TestUpdateDocs writes the table when it is told to.
func TestUpdateDocs(t *testing.T) {
	if !*update {
		t.Skip("it writes the page: go test ./internal/machines/conformance -run UpdateDocs -update")
	}
	head, _, _ := strings.Cut(read(t), mark)
	if err := os.WriteFile(page, []byte(head+mark+table()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDocs keeps the table, which people read, equal to the checks that run.
func TestDocs(t *testing.T) {
	_, got, _ := strings.Cut(read(t), mark)
	if diff := cmp.Diff(table(), got); diff != "" {
		t.Errorf("the page has another table; write it again: go test ./internal/machines/conformance -run UpdateDocs -update (-want +got):\n%s", diff)
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

func TestObjectsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "no infrastructure of a cluster",
		"kind: ACluster":                 "no apiVersion",
		"apiVersion: v1\nkind: ACluster": "no infrastructure of a machine",
		"apiVersion: v1\nkind: A\nmetadata: {annotations: {" + conformance.RoleAnnotation + ": pool}}": `"pool" is none of`,
		"apiVersion: v1\nkind: ACluster\n---\napiVersion: v1\nkind: ACluster":                          "there is one for cluster already",
		"{": "document 1",
	} {
		if _, err := conformance.ParseObjects([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
