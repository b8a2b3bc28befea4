// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/conformance/checkrun"
)

// Check is one promise of the contract.
type Check struct {
	// Name is lower case with dashes and never changes.
	Name string
	// Contract is the sentence it proves.
	Contract string

	needs []need
	run   func(*run)
}

// Checks returns all checks in the order in which they run. The table in
// docs/capi-conformance.md is made from it.
func Checks() []Check {
	return slices.Concat(crdChecks, clusterChecks, machineChecks, failureChecks, filterChecks, pauseChecks, deleteChecks, moveChecks, restartChecks, templateChecks, poolChecks, olderChecks, releaseChecks)
}

// Options report the progress of a run. The zero value reports nothing.
type Options = conformance.Options

// Execute runs checks one after the other outside of a Go test. When ctx ends,
// the check at hand fails, deletes what it made, and the rest fails at once.
// The reports of package conformance take the results.
func Execute(ctx context.Context, o Options, checks []Check, subject Subject) []conformance.Result {
	subject.complete()
	var results []conformance.Result
	for i, check := range checks {
		told := conformance.Check{Name: check.Name, Contract: check.Contract}
		if o.Started != nil {
			o.Started(told, i+1, len(checks))
		}
		outcome := checkrun.Run(ctx, func(t *checkrun.Recorder) { check.execute(t, subject) })
		result := conformance.Result{Check: told, Status: conformance.Status(outcome.Status), Messages: outcome.Messages, Took: outcome.Took, Left: outcome.Left}
		if o.Ended != nil {
			o.Ended(result)
		}
		results = append(results, result)
	}
	return results
}

// execute runs the check and has what it made deleted.
func (c Check) execute(t *checkrun.Recorder, subject Subject) {
	for _, need := range c.needs {
		if missing := need(&subject); missing != "" {
			t.Skipf("not checked: %s", missing)
		}
	}
	r := &run{Recorder: t, Subject: subject, made: map[types.UID]bool{}}
	t.Cleanup(r.cleanUp)
	if r.Inventory != nil {
		r.others = r.inventory()
	}
	c.run(r)
}
