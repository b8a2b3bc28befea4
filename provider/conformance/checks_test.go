// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/conformance"
)

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
