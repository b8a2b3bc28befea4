// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// quietLists is how many lists in a row must show nothing before the suite
// believes that a creation which returned no id has left nothing.
const quietLists = 5

// cleanUp deletes everything the check made, also when it has failed, and
// fails it if something stays. Then it closes the providers.
func (r *run) cleanUp() {
	r.Helper()
	r.settleCreations()
	r.removeBalancers()
	ids, lost := r.ledger.take()
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		r.remove(id)
	}
	if has[provider.Lister](r) {
		r.removeListed(len(lost) > 0)
	} else {
		r.removeLost(lost)
	}
	r.removeSnapshots()
	r.removeDisks()
	patience := 2 * r.subject.Limits.Settle
	if err := r.pollFor(patience, r.leaks); err != nil {
		names, _ := r.subject.Leaks()
		for _, name := range names {
			r.left(name)
		}
		r.Errorf("left behind %s after the end: %v", patience, err)
	}
	for _, p := range slices.Clone(r.open) {
		r.teardown(p)
	}
}

// settleCreations waits for calls that a failed check has left running; their
// contexts have ended.
func (r *run) settleCreations() {
	r.Helper()
	done := make(chan struct{})
	go func() {
		r.ledger.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(r.subject.Limits.Soon):
		r.Errorf("clean up: a CreateInstance is still running %s after its context ended", r.subject.Limits.Soon)
	}
}

func (r *run) remove(id string) {
	r.Helper()
	var last error
	again := r.poll(func() error {
		if last = r.tryDelete(id); provider.Retryable(last) {
			return last
		}
		return nil
	})
	if last != nil || again != nil {
		r.left("instance " + id)
		r.Errorf("clean up: DeleteInstance(%q): %v", id, last)
	}
}

// tryDelete does not end the clean-up when the call hangs: others must still be
// deleted.
func (r *run) tryDelete(id string) error {
	ctx, cancel := r.callContext()
	defer cancel()
	select {
	case a := <-begin(r, "DeleteInstance", func() (struct{}, error) { return struct{}{}, r.provider.DeleteInstance(ctx, id) }):
		return a.err
	case <-time.After(r.subject.Limits.Call + r.subject.Limits.Soon):
		return fmt.Errorf("no return within %s after its context ended", r.subject.Limits.Soon)
	}
}

// removeListed deletes what the list shows until it shows nothing: once when
// all ids were known, several times when one may not show yet.
func (r *run) removeListed(lost bool) {
	r.Helper()
	quiet, wanted := 0, 1
	if lost {
		wanted = quietLists
	}
	var list []provider.Instance
	err := r.poll(func() (err error) {
		for quiet < wanted {
			if list, err = r.list(r.owner); err != nil {
				return err
			}
			if len(list) > 0 {
				quiet = 0
				r.removeAll(list)
				return fmt.Errorf("the list still shows %s", describe(list))
			}
			quiet++
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		r.Errorf("clean up: %v", err)
	}
	for _, i := range list {
		r.left("instance " + i.ID)
	}
}

// keeper is a T that keeps what is left behind.
type keeper interface{ Left(what string) }

func (r *run) left(what string) {
	if k, ok := r.T.(keeper); ok {
		k.Left(what)
	}
}

// removeAll deletes what carries the tags of this run, in case the list shows
// what it must not. What is being deleted is among it: that is how the rest of
// an instance is listed too, and only another deletion removes that.
func (r *run) removeAll(list []provider.Instance) {
	r.Helper()
	for _, i := range list {
		if i.Tags[provider.TagNode] == r.owner[provider.TagNode] {
			r.remove(i.ID)
		}
	}
}

// removeLost learns the ids of lost creations from the contract: the same key
// gives the same instance.
func (r *run) removeLost(lost map[string]creation) {
	r.Helper()
	for _, c := range lost {
		c.provider = r.provider
		instance, err := r.attempt(c)
		if instance != nil && instance.ID != "" {
			r.remove(instance.ID)
		} else if provider.Retryable(err) {
			r.left("perhaps an instance of key " + c.key)
			r.Errorf("clean up: find the instance of key %.8s: %v", c.key, err)
		}
	}
	r.ledger.take()
}

// checkLeaks waits until nothing is left.
func (r *run) checkLeaks(when string) {
	r.Helper()
	if err := r.poll(r.leaks); err != nil {
		r.Errorf("left behind %s: %v", when, err)
	}
}

// leaks returns an error while the subject says that something is left.
func (r *run) leaks() error {
	if r.subject.Leaks == nil {
		return nil
	}
	left, err := r.subject.Leaks()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d resources: %s", len(left), strings.Join(left, ", "))
	}
	return err
}

// removeBalancers deletes those of the keys in the ledger, and then what the
// list shows, which may be doubles.
func (r *run) removeBalancers() {
	r.Helper()
	asked := r.ledger.takeBalancers()
	if len(asked) == 0 {
		return
	}
	keys := slices.DeleteFunc(asked, func(key string) bool {
		return errors.Is(provider.LoadBalancerSpec{Key: key, Ports: []provider.LoadBalancerPort{{Port: 1, Target: 1}}}.Check(), provider.ErrInvalidArgument)
	})
	again := func() error {
		list, err := r.listBalancers(r.owner)
		for _, b := range list {
			keys = append(keys, b.Key)
		}
		for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
			err = errors.Join(err, r.deleteBalancer(key))
		}
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("the list still shows %+v", list)
		}
		return err
	}
	if err := r.poll(again); err != nil {
		r.left("load balancers")
		r.Errorf("clean up of load balancers: %v", err)
	}
}
