// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// instants returns the times at which the suite ends a context during a creation.
func (r *run) instants() []time.Duration {
	if r.subject.Slow {
		return []time.Duration{0, 100 * time.Millisecond, time.Second}
	}
	return []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
}

// cutShort yields contexts that end after these times.
func (r *run) cutShort(instants []time.Duration) iter.Seq[context.Context] {
	return func(yield func(context.Context) bool) {
		for _, after := range instants {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), after)
			more := yield(ctx)
			cancel()
			if !more {
				return
			}
		}
	}
}

// cancelAfter makes an instance and ends the context of the call.
func (r *run) cancelAfter(key string, after time.Duration) outcome {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), after)
	defer cancel()
	o := r.await(ctx, r.creation(key))
	if o.err == nil && (o.instance == nil || o.instance.ID == "") {
		r.Errorf("CreateInstance returned neither an instance nor an error")
	}
	return o
}

func checkCancelBefore(r *run) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	cancel()
	r.await(ctx, r.creation(newKey()))
	r.callAll(ctx, r.provider)
}

// checkCancelReads ends contexts in the middle of calls that change nothing.
func checkCancelReads(r *run) {
	for ctx := range r.cutShort(r.instants()[1:]) {
		r.callAll(ctx, r.provider)
	}
}

// ends calls f, whatever it returns, and ends the check if it does not return.
func (r *run) ends(ctx context.Context, what string, f func()) {
	r.Helper()
	callWith(ctx, r, what, func(context.Context) (struct{}, error) {
		f()
		return struct{}{}, nil
	})
}

// checkCancelMidway leaves it to the clean-up to find what was made: by list,
// or by key where there is no list. All that may be there at a time counts.
func checkCancelMidway(r *run) {
	instants := r.instants()
	for _, after := range instants[max(0, len(instants)-r.subject.Parallel):] {
		r.cancelAfter(newKey(), after)
	}
}

// checkCancelRetryable ends contexts and then does what a caller does with a
// retryable error: it tries again.
func checkCancelRetryable(r *run) {
	key := newKey()
	o := r.cancelAfter(key, 0)
	r.checkRetryable("CreateInstance", o.err)
	r.mustCreate(key)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	cancel()
	if p, ok := provider.As[provider.Lister](r.provider); ok {
		r.checkRetryable("ListInstances", r.doWith(ctx, "ListInstances", func() error {
			_, err := p.ListInstances(ctx, r.owner)
			return err
		}))
	}
}

func (r *run) doWith(ctx context.Context, what string, f func() error) error {
	r.Helper()
	_, err := callWith(ctx, r, what, func(context.Context) (struct{}, error) { return struct{}{}, f() })
	return err
}

func (r *run) checkRetryable(what string, err error) {
	r.Helper()
	if err != nil && !provider.Retryable(err) {
		r.Errorf("%s, whose context had ended, failed with class %q, which nobody retries: %v", what, provider.Class(err), err)
	}
}

// checkCancelDelete ends the context of deletions, and then deletes.
func checkCancelDelete(r *run) {
	instance := r.mustCreate(newKey())
	for ctx := range r.cutShort(r.instants()) {
		err := r.doWith(ctx, "DeleteInstance", func() error { return r.provider.DeleteInstance(ctx, instance.ID) })
		r.checkRetryable("DeleteInstance", err)
	}
	r.mustDelete(instance.ID)
	r.checkGone(instance.ID)
	r.checkLeaks("after DeleteInstance, which had been cut short before")
}

// checkCancelPower cuts both calls short, and then makes them.
func checkCancelPower(r *run) {
	instance := r.mustCreate(newKey())
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	cancel()
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		r.checkRetryable(step.name, r.doWith(ctx, step.name, func() error { return step.call(ctx, instance.ID) }))
		r.mustPower(step, instance.ID)
	}
}

func checkCancelOpen(r *run) {
	for ctx := range r.cutShort(r.instants()) {
		var opened provider.Provider
		r.ends(ctx, "NewProviderContext", func() { opened, _ = r.subject.Open(ctx) })
		if opened != nil {
			r.teardown(opened)
		}
	}
}

func checkCancelVerify(r *run) {
	verifier := power[provider.ContextVerifier](r)
	for ctx := range r.cutShort(r.instants()) {
		r.ends(ctx, "VerifyConfig", func() { verifier.VerifyConfig(ctx) })
	}
	if err := r.verify(); err != nil {
		r.Errorf("ConfigVerifier, which had been cut short before: %v", err)
	}
}

func checkCancelTeardown(r *run) {
	for ctx := range r.cutShort(r.instants()) {
		p := r.reopen()
		closer := capabilityOf[provider.ContextCloser](r, p)
		r.open = slices.DeleteFunc(r.open, func(other provider.Provider) bool { return other == p }) // it is closed once
		r.ends(ctx, "TeardownContext", func() { closer.TeardownContext(ctx) })
	}
}
