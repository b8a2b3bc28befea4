// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/machines/conformance"
	providers "github.com/outrigger/outrigger/provider/conformance"
)

// everyPair names the variable that has all checks look at every mutant, or
// those whose names match a regular expression.
const everyPair = "OUTRIGGER_CAPI_MUTANTS"

// sample is how many other checks look at a mutant unless all do.
const sample = 1

func mutants() []mutant {
	return slices.Concat(crdMutants, clusterMutants, machineMutants, graphMutants, failureMutants, filterMutants, pauseMutants, deleteMutants, moveMutants, restartMutants, templateMutants, poolMutants, olderMutants, releaseMutants)
}

// TestSuiteSeesMutants proves that the kit can fail: each check for the reason
// it is there for and for no other. Time is that of a bubble, so nothing
// depends on how fast the machine is.
func TestSuiteSeesMutants(t *testing.T) {
	if os.Getenv(everyPair) == "" {
		t.Logf("of the checks that a mutant must pass, %d are run; all of them, some minutes: %s=all go test ./internal/machines/conformance", sample, everyPair)
	}
	if wanted := os.Getenv(everyPair); wanted != "" && len(chosen(mutant{}, 0)) == 0 {
		t.Fatalf("%s=%s: want all, or a regular expression that names of checks match", everyPair, wanted)
	}
	for number, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range chosen(m, number) {
				m.test(t, check)
			}
		})
	}
}

func (m mutant) test(t *testing.T, check conformance.Check) {
	t.Helper()
	result := execute(t, check, m.breaks)
	said := strings.Join(result.Messages, "\n")
	says, fails := m.fails[check.Name]
	switch {
	case fails && (result.Status != providers.Failed || !strings.Contains(said, says)):
		t.Errorf("%s: %s, want a failure that says %q, got %q", check.Name, result.Status, says, said)
	case !fails && result.Status == providers.Failed:
		t.Errorf("%s fails too: %s", check.Name, said)
	}
}

// chosen are the checks that must fail, and all others or some that differ
// from mutant to mutant.
func chosen(m mutant, number int) []conformance.Check {
	checks := conformance.Checks()
	switch wanted := os.Getenv(everyPair); wanted {
	case "all":
		return checks
	case "":
	default:
		names := regexp.MustCompile(wanted)
		return slices.DeleteFunc(checks, func(c conformance.Check) bool { return !names.MatchString(c.Name) })
	}
	var some []conformance.Check
	for i, check := range checks {
		_, fails := m.fails[check.Name]
		if fails || (i+len(checks)-number%len(checks))%len(checks)*sample/len(checks) != (i+len(checks)-number%len(checks)-1+len(checks))%len(checks)*sample/len(checks) {
			some = append(some, check)
		}
	}
	return some
}

// TestEveryCheckHasItsMutant proves that no check is there for show, and that
// each sees something that no other does.
func TestEveryCheckHasItsMutant(t *testing.T) {
	alone := map[string]bool{}
	for _, m := range mutants() {
		for name := range m.fails {
			if !slices.ContainsFunc(conformance.Checks(), func(c conformance.Check) bool { return c.Name == name }) {
				t.Errorf("mutant %q: there is no check %q", m.name, name)
			}
			if len(m.fails) == 1 {
				alone[name] = true
			}
		}
	}
	for _, check := range conformance.Checks() {
		if !alone[check.Name] {
			t.Errorf("no mutant turns the check %q red and no other", check.Name)
		}
	}
}
