// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// podName is the pod name of instances, except in checks of names.
const podName = "conformance"

// absentID is an id that no instance has.
const absentID = "outrigger-no-such-instance"

// run is one check that is running.
type run struct {
	T
	subject  Subject
	provider provider.Provider
	// open are the providers that need a Teardown.
	open []provider.Provider
	// owner holds tags that only instances of this run have.
	owner  map[string]string
	ledger ledger
}

func newRun(t T, subject Subject) *run {
	subject.complete()
	r := &run{T: t, subject: subject, provider: subject.checked(subject.Provider)}
	r.open = []provider.Provider{r.provider}
	r.owner = maps.Clone(subject.Tags)
	if r.owner == nil {
		r.owner = map[string]string{}
	}
	if r.owner[provider.TagCluster] == "" {
		r.owner[provider.TagCluster] = "conformance"
	}
	r.owner[provider.TagNode] = "conformance-" + newKey()[:16]
	t.Cleanup(r.cleanUp)
	return r
}

// newKey returns a key that looks like a sandbox id.
func newKey() string {
	id := make([]byte, 32)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// spec returns the spec of an instance with that key and owner.
func (r *run) spec(key string, owner map[string]string) provider.InstanceTypeSpec {
	spec := r.subject.Spec
	tags := maps.Clone(spec.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, owner)
	tags[provider.TagNamespace] = "default"
	tags[provider.TagPod] = podName
	tags[provider.TagKey] = key
	tags[provider.TagCreated] = time.Now().UTC().Format(time.RFC3339)
	spec.Tags = tags
	return spec
}

// outcome is how a creation ended.
type outcome struct {
	instance *provider.Instance
	err      error
}

// creation holds the arguments of a call of CreateInstance, which a check may change.
type creation struct {
	provider provider.Provider
	pod      string
	key      string
	spec     provider.InstanceTypeSpec
	config   cloudinit.CloudConfigGenerator
}

func (r *run) creation(key string) creation {
	return creation{r.provider, podName, key, r.spec(key, r.owner), cloudinit.Raw(r.subject.UserData)}
}

// start makes the call in a goroutine and records it in the ledger.
func (r *run) start(ctx context.Context, c creation) <-chan outcome {
	result := make(chan outcome, 1)
	r.ledger.began(c)
	go func() {
		var o outcome
		defer func() {
			r.ledger.ended(c, o)
			result <- o
		}()
		defer r.recovered("CreateInstance", &o.err)
		o.instance, o.err = c.provider.CreateInstance(ctx, c.pod, c.key, c.config, c.spec)
	}()
	return result
}

// await makes the call and waits for its result.
func (r *run) await(ctx context.Context, c creation) outcome {
	r.Helper()
	result := r.start(ctx, c)
	o, _ := callWith(ctx, r, "CreateInstance", func(context.Context) (outcome, error) { return <-result, nil })
	return o
}

// recovered is deferred in goroutines that call the provider: a panic fails the check.
func (r *run) recovered(what string, err *error) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%s: panic: %v", what, reason)
		r.Errorf("%s: panic: %v\n%s", what, reason, debug.Stack())
	}
}

// mustCreate makes an instance or ends the check.
func (r *run) mustCreate(key string) *provider.Instance {
	r.Helper()
	return r.mustDo(r.creation(key))
}

func (r *run) mustDo(c creation) *provider.Instance {
	r.Helper()
	instance, err := r.attempt(c)
	if err != nil {
		r.Fatalf("CreateInstance: %v", err)
	}
	if instance == nil {
		r.Fatalf("CreateInstance returned neither an instance nor an error")
	}
	if instance.ID == "" {
		r.Fatalf("CreateInstance returned an instance without an id")
	}
	return instance
}

// attempt makes the call, with the time limit of a call.
func (r *run) attempt(c creation) (*provider.Instance, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	o := r.await(ctx, c)
	return o.instance, o.err
}

// callContext returns a context with the time limit of a call.
func (r *run) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), r.subject.Limits.Call)
}

// call calls f with the time limit of a call. It ends the check if f does not return
// soon after the limit.
func call[R any](r *run, what string, f func(context.Context) (R, error)) (R, error) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	return callWith(ctx, r, what, f)
}

// answer is what a call returned.
type answer[R any] struct {
	value R
	err   error
}

// begin calls f in a goroutine. A panic is an error and fails the check.
func begin[R any](r *run, what string, f func() (R, error)) <-chan answer[R] {
	done := make(chan answer[R], 1)
	go func() {
		var a answer[R]
		defer func() { done <- a }()
		defer r.recovered(what, &a.err)
		a.value, a.err = f()
	}()
	return done
}

// callWith calls f with ctx. It ends the check if f does not return soon after ctx has
// ended.
func callWith[R any](ctx context.Context, r *run, what string, f func(context.Context) (R, error)) (R, error) {
	r.Helper()
	done := begin(r, what, func() (R, error) { return f(ctx) })
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
	}
	a := within(r, done, r.subject.Limits.Soon, what+" after its context ended")
	return a.value, a.err
}

// within waits for a value, or ends the check.
func within[V any](r *run, values <-chan V, limit time.Duration, what string) V {
	r.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-values:
		return v
	case <-timer.C:
	}
	r.Fatalf("%s: no return within %s", what, limit)
	panic("Fatalf returned")
}

func (r *run) delete(id string) error {
	r.Helper()
	return r.deleteBy(r.provider, id)
}

func (r *run) deleteBy(p provider.Provider, id string) error {
	r.Helper()
	return r.do("DeleteInstance", func(ctx context.Context) error { return p.DeleteInstance(ctx, id) })
}

func (r *run) list(match map[string]string) ([]provider.Instance, error) {
	r.Helper()
	return call(r, "ListInstances", func(ctx context.Context) ([]provider.Instance, error) {
		return power[provider.Lister](r).ListInstances(ctx, match)
	})
}

func (r *run) get(id string) (*provider.Instance, error) {
	r.Helper()
	return call(r, "GetInstance", func(ctx context.Context) (*provider.Instance, error) {
		return power[provider.Getter](r).GetInstance(ctx, id)
	})
}

// power returns an optional capability. The provider has it: the check lists it among
// its needs.
func power[P any](r *run) P {
	r.Helper()
	return capabilityOf[P](r, r.provider)
}

func capabilityOf[P any](r *run, from provider.Provider) P {
	r.Helper()
	p, ok := provider.As[P](from)
	if !ok {
		r.Fatalf("the provider has lost a power: %T", p)
	}
	return p
}

// has reports whether the provider has an optional capability.
func has[P any](r *run) bool {
	_, ok := provider.As[P](r.provider)
	return ok
}

// do is call for functions that return only an error.
func (r *run) do(what string, f func(context.Context) error) error {
	r.Helper()
	_, err := call(r, what, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// reopen opens another provider for the same cloud.
func (r *run) reopen() provider.Provider {
	r.Helper()
	p := r.subject.checked(r.subject.Reopen())
	if p == nil {
		r.Fatalf("Subject.Reopen returned no provider")
	}
	r.open = append(r.open, p)
	return p
}

// teardown closes an open provider.
func (r *run) teardown(p provider.Provider) {
	r.Helper()
	r.open = slices.DeleteFunc(r.open, func(other provider.Provider) bool { return other == p })
	if err := r.do("Teardown", func(ctx context.Context) error { return provider.Teardown(ctx, p) }); err != nil {
		r.Errorf("Teardown: %v", err)
	}
}

// poll calls ask until it returns nil. After Limits.Settle it returns the last error.
func (r *run) poll(ask func() error) error {
	r.Helper()
	return r.pollFor(r.subject.Limits.Settle, ask)
}

func (r *run) pollFor(limit time.Duration, ask func() error) error {
	r.Helper()
	end := time.Now().Add(limit)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := ask()
		left := time.Until(end)
		if err == nil || left <= 0 {
			return err
		}
		time.Sleep(min(pause, left))
	}
}

// eventually is like poll but ends the check on an error.
func (r *run) eventually(ask func() error) {
	r.Helper()
	if err := r.poll(ask); err != nil {
		r.Fatalf("within %s: %v", r.subject.Limits.Settle, err)
	}
}

// describe names instances for messages.
func describe(list []provider.Instance) string {
	text := fmt.Sprintf("%d instances", len(list))
	for _, i := range list {
		text += fmt.Sprintf(" %s(%s, key %.8s)", i.ID, i.State, i.Key)
	}
	return text
}
