// SPDX-License-Identifier: Apache-2.0

// Package rounds says how often tests do again what leaves something behind only
// now and then.
package rounds

import (
	"os"
	"strconv"
	"testing"
)

// Variable is how often, for all tests: few while one is being written, many when
// something shows but rarely. `make test` leaves it to each test.
const Variable = "OUTRIGGER_ROUNDS"

// Of answers wanted, or what [Variable] says.
func Of(t testing.TB, wanted int) int {
	t.Helper()
	text := os.Getenv(Variable)
	if text == "" {
		return wanted
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of rounds, 1 or more", Variable, text)
	}
	if n < wanted {
		t.Logf("%d rounds instead of %d, as %s says", n, wanted, Variable)
	}
	return n
}
