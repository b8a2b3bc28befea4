// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the tests generate into the documentation")

// CheckDoc fails unless the part of file between the lines
//
//	<!-- begin generated: name -->
//	<!-- end generated: name -->
//
// is want. With -update it writes want there.
func CheckDoc(t *testing.T, file, name, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin generated: "+name+" -->\n", "<!-- end generated: "+name+" -->\n"
	head, rest, ok := strings.Cut(string(data), begin)
	got, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	want = strings.TrimRight(want, "\n") + "\n"
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s, part %s, is stale (go test with -update writes it): -there +wanted\n%s", file, name, cmp.Diff(got, want))
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// CheckFile fails unless a file has that content. With -update it writes it.
func CheckFile(t *testing.T, file, want string) {
	t.Helper()
	got, err := os.ReadFile(file)
	switch {
	case err != nil && !os.IsNotExist(err):
		t.Fatal(err)
	case string(got) == want:
	case !*update:
		t.Errorf("%s is stale (go test with -update writes it): -there +wanted\n%s", file, cmp.Diff(string(got), want))
	default:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Actions collects the calls of many worlds: those of all tests of a package.
type Actions struct {
	mu   sync.Mutex
	seen map[string]bool
}

// Add adds the calls that a world has seen.
func (a *Actions) Add(w *World) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	for action := range w.Calls() {
		a.seen[action] = true
	}
}

// List returns what was seen, sorted.
func (a *Actions) List() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.seen))
}
