// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"testing"
)

type step struct {
	name string
	run  func(*testing.T)
}

// run runs steps as named tests and ends with the first that fails: the others
// have nothing to begin with.
func run(t *testing.T, steps []step) {
	t.Helper()
	for i, s := range steps {
		if t.Run(s.name, s.run) {
			continue
		}
		for _, missed := range steps[i+1:] {
			t.Run(missed.name, func(t *testing.T) { t.Skipf("it begins with what %q leaves, and that failed", s.name) })
		}
		return
	}
}

// lasting reports to one step of a test, and ends what is started with it when
// the whole test ends.
type lasting struct {
	testing.TB
	whole *testing.T
}

func (l lasting) Cleanup(f func())              { l.whole.Cleanup(f) }
func (l lasting) Context() context.Context      { return l.whole.Context() }
func (l lasting) TempDir() string               { return l.whole.TempDir() }
func (l lasting) Failed() bool                  { return l.whole.Failed() }
func (l lasting) Log(args ...any)               { l.whole.Log(args...) }
func (l lasting) Logf(form string, args ...any) { l.whole.Logf(form, args...) }
