// SPDX-License-Identifier: Apache-2.0

// Package tier tells tests how much is wanted: in `make test` each promise is
// proved once, at a size that fits; in `make test-all` everything runs.
package tier

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/conformance"
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

// Size returns how big something is: some, in `make test-all` all.
func Size(some, all int64) int64 {
	if All() {
		return all
	}
	return some
}

// SomeChecks are conformance checks of each kind. What a carrier, a daemon or an
// account adds is the same for every check of a kind, so that in `make test` all
// of them run in process alone.
var SomeChecks = []string{
	"create", "create-user-data-once", "create-unknown-image", "key-concurrent-processes", "key-lost-reply", "cancel-midway",
	"delete-repeated", "delete-empty-id", "list-owner", "get-absent", "console", "power", "node-address", "types", "verify", "teardown",
}

// Checks returns provider-check's regular expression of the checks to run: some,
// in `make test-all` all.
func Checks() string {
	if All() {
		return "."
	}
	return "^(" + strings.Join(SomeChecks, "|") + ")$"
}

// Conformance runs some checks on what open returns, in `make test-all` all.
func Conformance(t *testing.T, open func(t *testing.T) conformance.Subject) {
	for _, check := range conformance.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			if !slices.Contains(SomeChecks, check.Name) {
				OnlyAll(t)
			}
			check.Run(t, func(conformance.T) conformance.Subject { return open(t) })
		})
	}
}

// OnlyAll skips a test that runs in `make test-all` alone.
func OnlyAll(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skipf("runs in `make test-all`, or alone with %s=1", Variable)
	}
}
