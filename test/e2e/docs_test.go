// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestEveryCaseIsInTheGuide needs no cluster.
func TestEveryCaseIsInTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/e2e.md")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`\w+`).FindAllString(string(guide), -1)
	seen := map[string]bool{}
	for _, c := range cases {
		if !slices.Contains(words, c.name) {
			t.Errorf("docs/e2e.md does not name case %s", c.name)
		}
		if seen[c.name] {
			t.Errorf("two cases are named %s", c.name)
		}
		seen[c.name] = true
	}
}
