// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// scripted is a backend that returns what it is told.
type scripted struct {
	state reconciler.MachineState
	err   error
	own   []string
}

func (s *scripted) EnsureMachine(context.Context, *reconciler.MachineScope) (reconciler.MachineState, error) {
	return s.state, s.err
}

func (s *scripted) DeleteMachine(context.Context, *reconciler.MachineScope) (bool, error) {
	return s.err == nil, s.err
}

func (s *scripted) Warns(reason string) bool { return slices.Contains(s.own, reason) }

// reasoned is an error with a reason of a backend's own.
type reasoned struct {
	error
	reason string
}

func (r reasoned) Reason() string { return r.reason }
func (r reasoned) Unwrap() error  { return r.error }

// newTelling returns a stand whose machine m1 has the backend, and what takes the
// Events since the last time.
func newTelling(t *testing.T, b *scripted) (*stand, func(want ...string)) {
	t.Helper()
	s := newStand(t)
	recorder := events.NewFakeRecorder(100)
	s.machineR.Backend, s.machineR.Events = b, controllers.NewRecorder(recorder, s.clock.now)
	s.machineR.Complete()
	s.addCluster()
	s.addMachine("m1")
	s.bootstrap("m1")
	for range 3 { // until it is the backend's
		s.core()
		s.reconcileCluster(t.Context())
	}
	return s, func(want ...string) {
		t.Helper()
		s.reconcileMachine(t.Context(), "m1")
		var got []string
		for len(recorder.Events) > 0 {
			got = append(got, strings.Join(strings.Fields(<-recorder.Events)[:2], " "))
		}
		if !slices.Equal(got, want) {
			m, _ := s.infra("m1")
			t.Errorf("events %q, want %q of %+v", got, want, m)
		}
	}
}

// TestEventsAreToldOnce: what somebody has to act on is told, and no more often
// than it is news.
func TestEventsAreToldOnce(t *testing.T) {
	b := &scripted{own: []string{"ImageMissing", "EngineAway", "BootstrapFailed"}}
	s, reconcile := newTelling(t, b)
	trying := reconciler.MachineState{Reason: "PullingImage", Message: "the engine pulls i"}
	for i := range 5 { // each attempt is another condition for a moment
		b.state, b.err = trying, nil
		reconcile()
		b.err = reasoned{fmt.Errorf("%w: image i", provider.ErrNotFound), "ImageMissing"}
		if i == 0 {
			reconcile("Warning ImageMissing")
		} else {
			reconcile()
		}
	}
	b.err = reasoned{fmt.Errorf("%w: image j", provider.ErrNotFound), "ImageMissing"}
	reconcile() // in other words
	s.changeInfra("m1", func(m *infrav1.OutriggerMachine) { m.Generation++ })
	reconcile() // the condition is the same
	b.err = reasoned{fmt.Errorf("%w: image k", provider.ErrNotFound), "ImageMissing"}
	reconcile("Warning ImageMissing")
	b.state, b.err = trying, nil
	reconcile()
	b.err = reasoned{fmt.Errorf("%w: image k", provider.ErrNotFound), "ImageMissing"}
	s.clock.advance(2 * time.Hour)
	reconcile("Warning ImageMissing")

	b.state, b.err = reconciler.MachineState{Reason: "BootstrapFailed", Message: "exit status 1"}, nil
	reconcile("Warning BootstrapFailed")
	reconcile()
	b.state = reconciler.MachineState{ProviderID: "outrigger://fake/1", Provisioned: true}
	reconcile("Normal Provisioned")
	reconcile()

	// What is provisioned stays as it is when it cannot be looked at.
	b.err = reasoned{provider.ErrUnavailable, "EngineAway"}
	reconcile("Warning EngineAway")
	reconcile()
	b.err = nil
	reconcile()
	b.err = reasoned{provider.ErrUnavailable, "EngineAway"}
	reconcile("Warning EngineAway") // again
	b.err = provider.ErrUnavailable
	reconcile() // nobody's to act on

	b.err = reasoned{provider.ErrUnavailable, "EngineAway"}
	s.delete(&infrav1.OutriggerMachine{}, "m1")
	s.clock.advance(2 * time.Hour)
	reconcile("Warning EngineAway") // a deletion that does not go on
	reconcile()
	b.err = nil
	reconcile()
	if !s.gone("m1")() {
		t.Error("m1 is there")
	}
	s.delete(&clusterv1.Cluster{}, clusterName)
}
