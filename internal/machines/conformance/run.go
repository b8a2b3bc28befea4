// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
