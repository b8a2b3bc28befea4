// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/conformance/checkrun"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

type run struct {
	*checkrun.Recorder
	Subject
	fixtures []*fixture
	// others existed outside before.
	others []string
	// made are the UIDs of what the kit has made.
	made map[types.UID]bool
}

func unique() string { return strings.ToLower(rand.Text()[:8]) }

// newFixture makes a namespace with a Cluster's name in it.
func (r *run) newFixture() *fixture { return r.newFixtureNamed("c-" + unique()) }

func (r *run) newFixtureNamed(cluster string) *fixture {
	fx := &fixture{run: r, namespace: "capi-conformance-" + unique(), cluster: cluster}
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fx.namespace}})
	r.fixtures = append(r.fixtures, fx)
	for _, other := range r.Objects.Others {
		r.create(instance(other, fx.namespace, cluster, other.GetName()))
	}
	return fx
}

func (r *run) create(o client.Object) {
	if err := r.Client.Create(r.Context(), o); err != nil {
		r.Fatalf("create %s: %v", named(o), err)
	}
	r.made[o.GetUID()] = true
}

func named(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", o)
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	return kind + " " + o.GetName()
}

// inventory returns what exists outside and did not before.
func (r *run) inventory() []string {
	ids, err := r.Inventory(r.Context())
	if err != nil {
		r.Fatalf("list what exists outside: %v", err)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(r.others, id) })
}

func (r *run) wantNothingOutside() {
	if r.Inventory == nil {
		r.Logf("not looked at: what exists outside (--inventory-command)")
		return
	}
	r.until(r.Limits.Delete, "nothing is left outside", func() string {
		return strings.Join(r.inventory(), ", ")
	})
}

func (r *run) wantOutside(want int, when string) {
	if r.Inventory == nil {
		r.Logf("not looked at: what exists outside (--inventory-command)")
		return
	}
	if got := r.inventory(); len(got) != want {
		r.Errorf("%s %d exist outside, want %d: %s", when, len(got), want, strings.Join(got, ", "))
	}
}

func (r *run) until(limit time.Duration, what string, missing func() string) {
	if last := r.poll(r.Context(), limit, missing); last != "" {
		r.Fatalf("not within %s: %s; at last: %s", limit, what, last)
	}
}

// poll returns what is missing in the end.
func (r *run) poll(ctx context.Context, limit time.Duration, missing func() string) string {
	end := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, r.Limits.Poll) {
		r.play(ctx)
		last := missing()
		left := time.Until(end)
		if last == "" || left <= 0 || ctx.Err() != nil {
			return last
		}
		poll.Sleep(ctx, min(pause, left))
	}
}

// while polls for a while and fails the check at the first error.
func (r *run) while(what string, wrong func() string) {
	end := time.Now().Add(r.Limits.Quiet)
	for time.Now().Before(end) {
		r.play(r.Context())
		if is := wrong(); is != "" {
			r.Fatalf("%s: %s", what, is)
		}
		poll.Sleep(r.Context(), min(r.Limits.Poll, r.Limits.Quiet/10))
	}
}

// play does core's part where core does not run.
func (r *run) play(ctx context.Context) {
	if r.CoreRuns {
		return
	}
	for _, fx := range r.fixtures {
		if !fx.alone {
			fx.play(ctx)
		}
	}
}

// cleanUp deletes what the check made, in the order in which core does. What
// stays is listed.
func (r *run) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*r.Limits.Delete)
	defer cancel()
	for _, fx := range r.fixtures {
		fx.cleanUp(ctx)
	}
}

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

// history is every state that objects of a kind went through, in order.
type history struct {
	mu     sync.Mutex
	states []*unstructured.Unstructured
}

// record keeps the states of all objects of a kind in the place until the check
// ends.
func (fx *fixture) record(kind *unstructured.Unstructured) *history {
	h := &history{}
	w, err := fx.Client.Watch(fx.Context(), listOf(kind), client.InNamespace(fx.namespace))
	if err != nil {
		fx.Fatalf("watch %s: %v", kind.GetKind(), err)
	}
	ended := make(chan struct{})
	fx.Cleanup(func() { w.Stop(); <-ended })
	go func() {
		defer close(ended)
		for event := range w.ResultChan() {
			if fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event.Object); err == nil {
				h.add((&unstructured.Unstructured{Object: fields}).DeepCopy())
			}
		}
	}()
	return h
}

func (h *history) add(u *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, u)
}

func (fx *fixture) untilSeen(h *history, what string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	var seen *unstructured.Unstructured
	fx.until(fx.Limits.Provision, what, func() string {
		for _, u := range h.all() {
			if is(u) {
				seen = u
				return ""
			}
		}
		return "not seen yet"
	})
	return seen
}

func (h *history) all() []*unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[:len(h.states):len(h.states)]
}
