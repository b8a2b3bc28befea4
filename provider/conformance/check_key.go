// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// repetitions is how often a call that must have no further effect is
// repeated, racers how many goroutines make the same call at once.
const (
	repetitions = 10
	racers      = 8
)

func checkKeyRepeated(r *run) {
	key := newKey()
	first := r.mustCreate(key)
	for range repetitions - 1 {
		r.checkSame(first, r.mustCreate(key))
	}
}

func (r *run) checkSame(first, second *provider.Instance) {
	r.Helper()
	if second == nil {
		return
	}
	if first.ID != second.ID {
		r.Fatalf("the same key gave two instances, %s and %s", first.ID, second.ID)
	}
	if len(first.IPs) > 0 && (len(second.IPs) == 0 || first.IPs[0] != second.IPs[0]) {
		r.Errorf("instance %s has the addresses %v and then %v", first.ID, first.IPs, second.IPs)
	}
}

func checkKeyConcurrent(r *run) {
	r.race(newKey(), r.provider)
}

// race makes the same creation at once over all providers and answers the one
// instance it gives.
func (r *run) race(key string, providers ...provider.Provider) {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	var started []<-chan outcome
	for i := range racers {
		c := r.creation(key)
		c.provider = providers[i%len(providers)]
		started = append(started, r.start(ctx, c))
	}
	var made []*provider.Instance
	for _, result := range started {
		if instance := r.wait(result); instance != nil {
			made = append(made, instance)
		}
	}
	for _, instance := range made {
		r.checkSame(made[0], instance)
	}
}

func checkKeyReopened(r *run) {
	c := r.creation(newKey())
	first := r.mustDo(c)
	c.provider = r.reopen()
	r.checkSame(first, r.mustDo(c))
}

func checkKeyConcurrentProcesses(r *run) {
	r.race(newKey(), r.provider, r.reopen())
}

func checkKeyDifferent(r *run) {
	r.checkDistinct([]*provider.Instance{r.mustCreate(newKey()), r.mustCreate(newKey())})
}

// checkKeyLostReply loses the reply on this side, by ending the context in the
// middle, at several points in time.
func checkKeyLostReply(r *run) {
	for _, after := range r.instants() {
		key := newKey()
		o := r.cancelAfter(key, after)
		second := r.mustCreate(key)
		if o.instance != nil && o.instance.ID != "" && o.err == nil {
			r.checkSame(o.instance, second)
		}
		r.checkListedOnce(key)
		if err := r.delete(second.ID); err != nil {
			r.Errorf("DeleteInstance: %v", err)
		}
	}
}

// instants are when the suite ends a context in the middle of a creation.
func (r *run) instants() []time.Duration {
	if r.subject.Slow {
		return []time.Duration{0, 100 * time.Millisecond, time.Second}
	}
	return []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
}

// cancelAfter makes an instance and ends the context of the call.
func (r *run) cancelAfter(key string, after time.Duration) outcome {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), after)
	defer cancel()
	o := r.await(ctx, r.creation(key))
	if o.err == nil && (o.instance == nil || o.instance.ID == "") {
		r.Errorf("CreateInstance answered neither an instance nor an error")
	}
	return o
}

// checkListedOnce counts the instances of a key once the list shows one.
// Instances being deleted do not count: a call that was cut off may have
// begun to remove what it had made.
func (r *run) checkListedOnce(key string) {
	r.Helper()
	if _, ok := r.provider.(provider.Lister); !ok {
		return
	}
	for range quietLists {
		r.eventually(func() error {
			list, err := r.list(r.owner)
			if err != nil {
				return err
			}
			n := 0
			for _, i := range list {
				if i.Key == key && i.State != provider.StateDeleting {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("%d instances have the key: %s", n, describe(list))
			}
			return nil
		})
	}
}

func checkCancelBefore(r *run) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	cancel()
	r.await(ctx, r.creation(newKey()))
	r.ends(ctx, "DeleteInstance", func() { r.provider.DeleteInstance(ctx, absentID) })
	if p, ok := r.provider.(provider.Lister); ok {
		r.ends(ctx, "ListInstances", func() { p.ListInstances(ctx, r.owner) })
	}
	if p, ok := r.provider.(provider.Getter); ok {
		r.ends(ctx, "GetInstance", func() { p.GetInstance(ctx, absentID) })
	}
	if p, ok := r.provider.(provider.ConsoleReader); ok {
		r.ends(ctx, "Console", func() { p.Console(ctx, absentID, 1) })
	}
	if p, ok := r.provider.(provider.InstanceTypeLister); ok {
		r.ends(ctx, "InstanceTypes", func() { p.InstanceTypes(ctx) })
	}
}

// ends calls f, whatever it answers, and ends the check if it does not return.
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
