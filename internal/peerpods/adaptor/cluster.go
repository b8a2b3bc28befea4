// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/timeline"
)

// Observer receives the changes of sandboxes. Observe must not block: it is
// called between the steps of a sandbox, for each sandbox in order.
type Observer interface {
	Observe(Change)
}

// ChangeKind is the kind of a change.
type ChangeKind string

// Kinds of changes.
const (
	// ChangeKept: the sandbox was taken over from an earlier process.
	ChangeKept ChangeKind = "kept"
	// ChangeDone: a step was done.
	ChangeDone ChangeKind = "done"
	// ChangeFailed: a step failed; what was done is being undone.
	ChangeFailed ChangeKind = "failed"
	// ChangeStarted: StartVM has ended; without Err the pod can run.
	ChangeStarted ChangeKind = "started"
	// ChangeTimeline: the first container runs, and the guest has reported its steps.
	ChangeTimeline ChangeKind = "timeline"
	// ChangeAttested: the pod's key broker has accepted the VM's evidence; with Err it has not.
	ChangeAttested ChangeKind = "attested"
	// ChangeStopping: the removal has begun.
	ChangeStopping ChangeKind = "stopping"
	// ChangeStuck: the removal failed; it is tried again.
	ChangeStuck ChangeKind = "stuck"
	// ChangeGone: nothing is left.
	ChangeGone ChangeKind = "gone"
)

// Change is something that has just happened to a sandbox.
type Change struct {
	Kind ChangeKind
	// Sandbox is its record as it is now. Of one that was refused it may hold
	// no more than the pod's name and namespace, or nothing.
	Sandbox Record
	// Step is the one that ChangeDone and ChangeFailed are about.
	Step string
	// At is when it happened and Took how long the step or call took.
	At   time.Time
	Took time.Duration
	// Err is why; a *StepError for ChangeFailed.
	Err error
	// Timeline is that of ChangeTimeline.
	Timeline timeline.Timeline
	// Attestation is that of ChangeAttested.
	Attestation attest.Status
}

// Cluster is what the orchestrator of the node's pods adds. All methods are
// safe for concurrent use. Those that ask the orchestrator wait for it for
// seconds at most: pods start and stop without it.
type Cluster interface {
	Observer
	// Pod returns the pod as the orchestrator knows it. An error means that
	// this is unknown; the pod runs all the same.
	Pod(ctx context.Context, namespace, name string) (Pod, error)
	// Claim makes the instance that is about to be made known to the
	// orchestrator. Failures are retried in the background.
	Claim(ctx context.Context, rec Record)
	// Release removes the claim once the instance is gone. It is retried until
	// it succeeds; without a claim it succeeds, too.
	Release(ctx context.Context, rec Record) error
	// TakeVM takes a VM that waits in a pool and fits the sandbox; nil when there is none.
	// The pod's claim says so then, and nobody else gets that VM.
	TakeVM(ctx context.Context, rec Record) (*PoolVM, error)
	// DropVM has the VM deleted that the sandbox took from a pool, and tells the pod's owner
	// why. Release deletes it, too.
	DropVM(ctx context.Context, rec Record, why error) error
	// PullSecrets returns the registry credentials of the sandbox's pod, those
	// that fit into room bytes of a Docker configuration. It reports problems
	// with the others to the pod's owner.
	PullSecrets(ctx context.Context, rec Record, room int) []RegistryAuth
}

// Pod is what is known of a pod beyond its name.
type Pod struct {
	UID string
	// Initdata is what the pod's annotation says; empty without one.
	Initdata string
}

// RegistryAuth is one registry's entry of a Docker configuration.
type RegistryAuth struct {
	Registry string
	// Auth is base64 of user:password.
	Auth string
}

// observe notifies all observers.
func (s *Service) observe(sb *sandbox, change Change) {
	if len(s.opts.Observers) == 0 && s.opts.Cluster == nil {
		return
	}
	change.Sandbox = sb.snapshot()
	s.notify(change)
}

func (s *Service) notify(change Change) {
	if change.At.IsZero() {
		change.At = s.opts.Now()
	}
	if s.opts.Cluster != nil {
		s.opts.Cluster.Observe(change)
	}
	for _, o := range s.opts.Observers {
		o.Observe(change)
	}
}

// resolveWait bounds how long CreateVM waits for what the orchestrator knows
// of its pod.
const resolveWait = 2 * time.Second

// resolve completes a record with what the orchestrator knows about the pod. A
// shim passes the pod's initdata on only if its configuration allows that, so
// resolve reads the pod's annotation as well: a pod that asks for initdata must
// not run without it because of a line in a shim's configuration.
func (s *Service) resolve(ctx context.Context, rec *Record) error {
	if s.opts.Cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	pod, err := s.opts.Cluster.Pod(ctx, rec.PodNamespace, rec.PodName)
	if err != nil {
		s.opts.Log.Warn("the sandbox's pod cannot be looked up; it runs anyway", "sandbox", rec.ID, "pod", rec.PodName, "namespace", rec.PodNamespace, "error", err)
		return nil
	}
	rec.PodUID = pod.UID
	if rec.Initdata != "" {
		return nil
	}
	if rec.Initdata, err = NormalInitdata(pod.Initdata); err != nil {
		return invalid("annotation %s: %w", annotationInitdata, err)
	}
	return nil
}

// claim records the instance in the orchestrator before the cloud is called.
func (s *Service) claim(ctx context.Context, sb *sandbox) error {
	if s.opts.Cluster != nil {
		s.opts.Cluster.Claim(ctx, sb.snapshot())
	}
	return nil
}

func (s *Service) release(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	select {
	case <-s.dropClaimed(&rec, errStopped):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.opts.Cluster == nil {
		return nil
	}
	if err := s.opts.Cluster.Release(ctx, rec); err != nil {
		return fmt.Errorf("release the instance's claim in the cluster: %w", err)
	}
	return nil
}

// States counts the sandboxes by state.
func (s *Service) States() map[State]int {
	counts := map[State]int{}
	for _, sb := range s.all() {
		counts[sb.snapshot().State]++
	}
	return counts
}

// Carried counts what the relay has carried for all sandboxes of the node.
type Carried struct {
	Sandboxes, Clients, Calls int64
}

// Carried asks the relay.
func (s *Service) Carried(ctx context.Context) (Carried, error) {
	list, err := s.opts.Relay.List(ctx)
	sum := Carried{Sandboxes: int64(len(list))}
	for _, served := range list {
		sum.Clients += int64(served.GetClients())
		sum.Calls += served.GetCalls()
	}
	return sum, err
}

// refusedPod reports a CreateVM that was refused before there was a sandbox.
func (s *Service) refusedPod(id string, annotations map[string]string, err error) {
	pod := podRequest{Name: annotations[annotationPodName], Namespace: annotations[annotationPodNamespace]}
	pod.fromCRIO()
	if pod.checkPod() != nil || errors.Is(err, errShutdown) {
		return
	}
	s.notify(Change{
		Kind:    ChangeFailed,
		Sandbox: Record{ID: strings.ToValidUTF8(shorten(id, 80), "?"), PodName: pod.Name, PodNamespace: pod.Namespace},
		Step:    stepInspectNetwork,
		Err:     &StepError{Step: stepInspectNetwork, Err: err},
	})
}
