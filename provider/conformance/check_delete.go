// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

func checkDelete(r *run) {
	instance := r.mustCreate(newKey())
	r.mustDelete(instance.ID)
	r.checkGone(instance.ID)
	r.checkLeaks("after DeleteInstance")
}

func (r *run) mustDelete(id string) {
	r.Helper()
	if err := r.delete(id); err != nil {
		r.Fatalf("DeleteInstance(%q): %v", id, err)
	}
}

// checkGone waits until no list shows the instance, where there are lists.
func (r *run) checkGone(id string) {
	r.Helper()
	if !has[provider.Lister](r) {
		return
	}
	r.eventually(func() error {
		list, err := r.list(r.owner)
		if err == nil && find(list, id) != nil {
			err = fmt.Errorf("the list still shows the deleted instance %s", id)
		}
		return err
	})
}

func find(list []provider.Instance, id string) *provider.Instance {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

func checkDeleteRepeated(r *run) {
	instance := r.mustCreate(newKey())
	for range repetitions {
		r.mustDelete(instance.ID)
	}
}

func checkDeleteConcurrent(r *run) {
	instance := r.mustCreate(newKey())
	for _, err := range r.atOnce("DeleteInstance", func(ctx context.Context) error {
		return r.provider.DeleteInstance(ctx, instance.ID)
	}) {
		r.Errorf("DeleteInstance(%q), called %d times at once: %v", instance.ID, racers, err)
	}
	r.checkGone(instance.ID)
}

func checkDeleteAbsent(r *run) {
	for range repetitions {
		r.mustDelete(absentID)
	}
}

func checkDeleteEmptyID(r *run) {
	r.checkClass("DeleteInstance of the empty id", r.delete(""), provider.ErrInvalidArgument)
}

func checkDeleteReopened(r *run) {
	instance := r.mustCreate(newKey())
	if err := r.deleteBy(r.reopen(), instance.ID); err != nil {
		r.Fatalf("DeleteInstance(%q): %v", instance.ID, err)
	}
	r.checkGone(instance.ID)
}

// checkDeleteWhileCreating deletes as soon as a list shows the instance. The
// creation may fail or win; nothing may stay once both are deleted.
func checkDeleteWhileCreating(r *run) {
	ctx, cancel := r.callContext()
	defer cancel()
	result := r.start(ctx, r.creation(newKey()))
	o, ended := r.deleteListed(result)
	if !ended {
		o = within(r, result, r.subject.Limits.Call+r.subject.Limits.Soon, "CreateInstance of a deleted instance")
	}
	if o.instance != nil && o.instance.ID != "" {
		r.mustDelete(o.instance.ID)
		r.checkGone(o.instance.ID)
	} else if o.err == nil {
		r.Errorf("CreateInstance returned neither an instance nor an error")
	}
}

// deleteListed waits until the list shows an instance and deletes it, or until
// the creation has ended, and returns how then.
func (r *run) deleteListed(result <-chan outcome) (outcome, bool) {
	r.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case o := <-result:
			return o, true
		case <-ticker.C:
		}
		list, err := r.list(r.owner)
		if err != nil {
			r.Fatalf("ListInstances: %v", err)
		}
		if len(list) > 0 {
			r.mustDelete(list[0].ID)
			return outcome{}, false
		}
	}
}

// garbage are ids that no cloud gives. None is a pattern that could match
// what others own, should a provider take it for one.
var garbage = []string{
	" ", "-", "-rf", "../../outrigger", absentID + "/../x", absentID + "*", absentID + "%", absentID + " or 1=1", "\n", "\t",
	"'\"`$(id)", "gr\u00fcn-\U0001f680", strings.Repeat("x", 4096),
}

func checkDeleteGarbage(r *run) {
	key := newKey()
	made := r.mustCreate(key)
	for _, id := range append([]string{made.ID + " ", "../" + made.ID, made.ID + "/."}, garbage...) {
		if err := r.delete(id); err != nil && !errors.Is(err, provider.ErrInvalidArgument) {
			r.Errorf("DeleteInstance(%.50q): %v", id, err)
		}
	}
	r.checkStays(key, made)
}

// checkStays fails when the instance is not there any more, or being deleted:
// the key would give another.
func (r *run) checkStays(key string, made *provider.Instance) {
	r.Helper()
	if !has[provider.Lister](r) {
		r.checkSame(made, r.mustCreate(key))
		return
	}
	if i := r.shown(made.ID); i.State == provider.StateDeleting {
		r.Errorf("instance %s is being deleted", made.ID)
	}
}

func checkDeleteOthers(r *run) {
	key := newKey()
	made, other := r.mustCreate(newKey()), r.mustCreate(key)
	r.mustDelete(made.ID)
	r.checkGone(made.ID)
	r.checkStays(key, other)
}

func checkDeleteParallel(r *run) {
	made := r.createMany()
	var deletions []func(context.Context) error
	for _, instance := range made {
		deletions = append(deletions, func(ctx context.Context) error { return r.provider.DeleteInstance(ctx, instance.ID) })
	}
	for _, err := range r.together("DeleteInstance", deletions) {
		r.Errorf("DeleteInstance, called for %d instances at once: %v", len(made), err)
	}
	for _, instance := range made {
		r.checkGone(instance.ID)
	}
}

// createMany makes as many instances as there may be, at once.
func (r *run) createMany() []*provider.Instance {
	r.Helper()
	ctx, cancel := r.callContext()
	defer cancel()
	var started []<-chan outcome
	for range r.subject.Parallel {
		started = append(started, r.start(ctx, r.creation(newKey())))
	}
	var made []*provider.Instance
	for _, result := range started {
		if instance := r.wait(result); instance != nil {
			made = append(made, instance)
		}
	}
	return made
}

func checkDeleteStopped(r *run) {
	instance := r.mustCreate(newKey())
	r.mustPower(r.powerOff(), instance.ID)
	r.mustDelete(instance.ID)
	r.checkGone(instance.ID)
	r.checkLeaks("after DeleteInstance of a stopped instance")
}
