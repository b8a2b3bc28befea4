// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// shown waits until the list shows the instance and returns how.
func (r *run) shown(id string) *provider.Instance {
	r.Helper()
	return r.shownBy(r.provider, id)
}

func (r *run) shownBy(p provider.Provider, id string) *provider.Instance {
	r.Helper()
	lister := capabilityOf[provider.Lister](r, p)
	var instance *provider.Instance
	r.eventually(func() error {
		list, err := call(r, "ListInstances", func(ctx context.Context) ([]provider.Instance, error) {
			return lister.ListInstances(ctx, r.owner)
		})
		if instance = find(list, id); err == nil && instance == nil {
			err = fmt.Errorf("the list does not show %s", id)
		}
		return err
	})
	return instance
}

// matching returns the owner's tags and one more.
func (r *run) matching(key, value string) map[string]string {
	match := maps.Clone(r.owner)
	match[key] = value
	return match
}

func checkListMany(r *run) {
	var ids []string
	for _, instance := range r.createMany() {
		ids = append(ids, instance.ID)
	}
	r.checkShows(r.owner, ids...)
}

func checkListMatchAll(r *run) {
	for _, key := range []string{newKey(), newKey()} {
		made := r.mustCreate(key)
		r.checkShows(r.matching(provider.TagKey, key), made.ID)
	}
}

func checkListUnknownTag(r *run) {
	made := r.mustCreate(newKey())
	r.checkShows(r.owner, made.ID)
	r.checkShows(r.matching("outrigger-no-such-tag", "x"))
}

// Every character that the value of a tag may have, in two values, since some
// clouds allow 63 characters.
const (
	tagLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	tagOthers  = "0123456789-_.:x..x--x__x::9"
)

func checkListTagCharacters(r *run) {
	c := r.creation(newKey())
	c.spec.Tags[provider.TagNamespace], c.spec.Tags[provider.TagPod] = tagLetters, tagOthers
	made := r.mustDo(c)
	for key, value := range map[string]string{provider.TagNamespace: tagLetters, provider.TagPod: tagOthers} {
		list := r.checkShows(r.matching(key, value), made.ID)
		if got := list[0].Tags[key]; got != value {
			r.Errorf("tag %s is %q, made with %q", key, got, value)
		}
	}
}

func checkListAddresses(r *run) {
	made := r.mustCreate(newKey())
	if got := r.shown(made.ID); !slices.Equal(got.IPs, made.IPs) {
		r.Errorf("instance %s is listed with the addresses %v, made with %v", made.ID, got.IPs, made.IPs)
	}
}

func checkListName(r *run) {
	made := r.mustCreate(newKey())
	if got := r.shown(made.ID); got.Name != made.Name {
		r.Errorf("instance %s is listed with the name %q, made with %q", made.ID, got.Name, made.Name)
	}
}

func checkListConcurrent(r *run) {
	made := r.mustCreate(newKey())
	r.checkShows(r.owner, made.ID)
	lister := power[provider.Lister](r)
	for _, err := range r.atOnce("ListInstances", func(ctx context.Context) error {
		list, err := lister.ListInstances(ctx, r.owner)
		if err == nil && find(list, made.ID) == nil {
			err = fmt.Errorf("the list shows %s, not %s", describe(list), made.ID)
		}
		return err
	}) {
		r.Errorf("ListInstances, called %d times at once: %v", racers, err)
	}
}

// atOnce makes the same call on several goroutines and returns the errors.
func (r *run) atOnce(what string, f func(context.Context) error) []error {
	r.Helper()
	return r.together(what, slices.Repeat([]func(context.Context) error{f}, racers))
}

// together makes calls at the same time and returns the errors.
func (r *run) together(what string, calls []func(context.Context) error) []error {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	var begun []<-chan answer[struct{}]
	for _, f := range calls {
		begun = append(begun, begin(r, what, func() (struct{}, error) { return struct{}{}, f(ctx) }))
	}
	var errs []error
	for _, done := range begun {
		if a := within(r, done, r.subject.Limits.Call+r.subject.Limits.Soon, what); a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errs
}

// createdTolerance is how far a cloud's clock may be from ours where it is
// kept by NTP at all; a zone's offset is more.
const createdTolerance = 10 * time.Minute

func checkCreated(r *run) {
	before := time.Now()
	made := r.mustCreate(newKey())
	after := time.Now()
	created := r.shown(made.ID).Created
	if created.IsZero() {
		return // allowed: unknown
	}
	if created.Before(before.Add(-createdTolerance)) || created.After(after.Add(createdTolerance)) {
		r.Errorf("instance %s was created %s; it was asked for %s and was there %s", made.ID, created, before, after)
	}
}

// checkListState waits until the instance runs, where the provider tells
// states.
func checkListState(r *run) {
	made := r.mustCreate(newKey())
	r.eventually(func() error {
		switch state := r.shown(made.ID).State; state {
		case "", provider.StateRunning:
			return nil
		default:
			return fmt.Errorf("instance %s is %q and does not become %q", made.ID, state, provider.StateRunning)
		}
	})
}

// callersAddress is of the prefix for documentation (RFC 3849).
var callersAddress = netip.MustParseAddr("2001:db8::bad")

// checkListOwn changes what a list has returned.
func checkListOwn(r *run) {
	made := r.mustCreate(newKey())
	for range 2 {
		got := r.shown(made.ID)
		if got.Tags["changed-by-the-caller"] != "" || slices.Contains(got.IPs, callersAddress) {
			r.Fatalf("instance %s is listed with %v and the tags %v: the caller changed what an earlier list had returned", made.ID, got.IPs, got.Tags)
		}
		if got.Tags != nil {
			got.Tags["changed-by-the-caller"] = "yes"
		}
		for i := range got.IPs {
			got.IPs[i] = callersAddress
		}
	}
}

func checkListReopenedContent(r *run) {
	c := r.creation(newKey())
	made := r.mustDo(c)
	r.checkContent(c, made, r.shownBy(r.reopen(), made.ID))
}
