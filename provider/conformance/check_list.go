// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"time"

	"github.com/outrigger/outrigger/provider"
)

func checkListOwner(r *run) {
	first, second := r.mustCreate(newKey()), r.mustCreate(newKey())
	r.checkShows(r.owner, first.ID, second.ID)
}

// checkShows waits until a list shows exactly these instances. One that shows
// another is wrong at once: nobody else carries the tags.
func (r *run) checkShows(match map[string]string, ids ...string) []provider.Instance {
	r.Helper()
	var list []provider.Instance
	r.eventually(func() (err error) {
		if list, err = r.list(match); err != nil {
			return err
		}
		r.checkOnly(list, ids)
		if len(list) != len(ids) {
			return fmt.Errorf("the list shows %s, not %v", describe(list), ids)
		}
		return nil
	})
	return list
}

func (r *run) checkOnly(list []provider.Instance, ids []string) {
	r.Helper()
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	seen := map[string]bool{}
	for _, i := range list {
		if !wanted[i.ID] {
			r.Fatalf("the list shows %s, which does not have the tags asked for", i.ID)
		}
		if seen[i.ID] {
			r.Fatalf("the list shows %s twice", i.ID)
		}
		seen[i.ID] = true
	}
}

func checkListContent(r *run) {
	c := r.creation(newKey())
	made := r.mustDo(c)
	list := r.checkShows(r.owner, made.ID)
	r.checkContent(c, made, &list[0])
}

// clockSkew is how far the cloud's clock may be from ours.
const clockSkew = 24 * time.Hour

// checkContent compares what a list or look-up shows with what was made.
func (r *run) checkContent(c creation, made, got *provider.Instance) {
	r.Helper()
	r.checkIdentity(c, made, got)
	if age := time.Since(got.Created); !got.Created.IsZero() && age.Abs() > clockSkew {
		r.Errorf("instance %s was created %s, which is not today", got.ID, got.Created)
	}
	switch got.State {
	case "", provider.StatePending, provider.StateRunning:
	default:
		r.Errorf("instance %s is in state %q right after it was made", got.ID, got.State)
	}
}

// checkIdentity compares by what a process that did not make the instance tells whose it is.
func (r *run) checkIdentity(c creation, made, got *provider.Instance) {
	r.Helper()
	if got.ID != made.ID || got.Key != c.key {
		r.Errorf("shown are id %q and key %q, made with id %q and key %q", got.ID, got.Key, made.ID, c.key)
	}
	for key, value := range c.spec.Tags {
		if got.Tags[key] != value {
			r.Errorf("tag %s is %q, made with %q", key, got.Tags[key], value)
		}
	}
}

// checkListWhileStarting lists all the time from before the instance is there until it runs. Who
// sees an instance without its key takes it for nobody's.
func checkListWhileStarting(r *run) {
	ctx, cancel := r.callContext()
	defer cancel()
	c := r.creation(newKey())
	result := r.start(ctx, c)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		list, err := r.list(r.owner)
		if err != nil {
			r.Fatalf("ListInstances while an instance is being made: %v", err)
		}
		for i := range list {
			r.checkIdentity(c, &list[i], &list[i])
		}
		select {
		case o := <-result:
			if o.err != nil || o.instance == nil {
				r.Fatalf("CreateInstance: %v, %v", o.instance, o.err)
			}
			r.checkShows(r.owner, o.instance.ID)
			return
		case <-ctx.Done():
			r.Fatalf("CreateInstance: %v", ctx.Err())
		case <-ticker.C:
		}
	}
}

// checkListPool makes what peerpod-ctrl does: an instance that is on no node, found by its cluster.
func checkListPool(r *run) {
	r.owner = maps.Clone(r.owner)
	delete(r.owner, provider.TagNode)
	r.owner[provider.TagNamespace] = "pool-" + newKey()[:16]
	c := r.creation(newKey())
	maps.Copy(c.spec.Tags, r.owner)
	made := r.mustDo(c)
	r.checkIdentity(c, made, &r.checkShows(r.owner, made.ID)[0])
}

func checkListOthers(r *run) {
	other := r.creation(newKey())
	owner := maps.Clone(r.owner)
	owner[provider.TagNode] += "-other"
	other.spec = r.spec(other.key, owner)
	mine, theirs := r.mustCreate(newKey()), r.mustDo(other)
	r.checkShows(owner, theirs.ID)
	for range quietLists {
		r.checkShows(r.owner, mine.ID)
	}
}

func checkListEmptyMatch(r *run) {
	for _, match := range []map[string]string{nil, {}} {
		_, err := r.list(match)
		r.checkClass(fmt.Sprintf("ListInstances(%#v)", match), err, provider.ErrInvalidArgument)
	}
}

// checkListDeleted goes on after the list has shown nothing: the instance must
// not come back, out of a cache.
func checkListDeleted(r *run) {
	instance := r.mustCreate(newKey())
	r.checkShows(r.owner, instance.ID)
	r.mustDelete(instance.ID)
	r.checkGone(instance.ID)
	for range quietLists {
		list, err := r.list(r.owner)
		if err != nil {
			r.Fatalf("ListInstances: %v", err)
		}
		if i := find(list, instance.ID); i != nil && i.State != provider.StateDeleting {
			r.Errorf("the list shows the deleted instance %s again, %q", i.ID, i.State)
		}
	}
}

// checkListReopened closes the first process, as an earlier one is.
func checkListReopened(r *run) {
	made := r.mustCreate(newKey())
	next := r.reopen()
	r.teardown(r.provider)
	r.provider = next
	r.shown(made.ID)
}
