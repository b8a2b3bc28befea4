// SPDX-License-Identifier: Apache-2.0

// Package tier tells tests how much is wanted: in `make test` each promise is
// proved once, at a size that fits; in `make test-all` everything runs.
package tier

import (
	"os"
	"testing"
)

// Variable is what `make test-all` sets.
const Variable = "OUTRIGGER_TEST_ALL"

// All reports whether everything is wanted.
func All() bool { return os.Getenv(Variable) != "" }

// Rounds returns how often to do a thing: some times, or all in `make test-all`.
func Rounds(t testing.TB, some, all int) int {
	t.Helper()
	if All() {
		return all
	}
	t.Logf("%d of %d rounds; `make test-all` does all of them", some, all)
	return some
}

// OnlyAll skips a test that runs in `make test-all` alone.
func OnlyAll(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("runs in `make test-all`, or alone with %s=1", Variable)
	}
}
