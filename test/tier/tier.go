// SPDX-License-Identifier: Apache-2.0

// Package tier tells tests how much is wanted: in `make test` each promise is
// proved once, at a size that fits; in `make test-all` everything runs.
package tier

import (
	"os"
	"strconv"
	"testing"
)

// Variable is what `make test-all` sets.
const Variable = "OUTRIGGER_TEST_ALL"

// All reports whether everything is wanted.
func All() bool { return os.Getenv(Variable) != "" }

// RoundsVariable sets how often, for all tests: few while one is being written,
// many when something shows but rarely.
const RoundsVariable = "OUTRIGGER_ROUNDS"

// Rounds returns how often to do again what fails or leaves something behind
// only now and then: some times, in `make test-all` all.
func Rounds(t testing.TB, some, all int) int {
	t.Helper()
	if text := os.Getenv(RoundsVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q: want a number of rounds, 1 or more", RoundsVariable, text)
		}
		return n
	}
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
