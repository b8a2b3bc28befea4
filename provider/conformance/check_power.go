// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// powerStep is a call of a PowerController and the state it leads to.
type powerStep struct {
	name  string
	call  func(context.Context, string) error
	state provider.InstanceState
}

func (r *run) powerOff() powerStep {
	r.Helper()
	return powerStep{"PowerOff", power[provider.PowerController](r).PowerOff, provider.StateStopped}
}

func (r *run) powerOn() powerStep {
	r.Helper()
	return powerStep{"PowerOn", power[provider.PowerController](r).PowerOn, provider.StateRunning}
}

// mustPower takes the step and waits for its state, or ends the check.
func (r *run) mustPower(step powerStep, id string) {
	r.Helper()
	if err := r.power(step, id); err != nil {
		r.Fatalf("%s(%q): %v", step.name, id, err)
	}
	r.checkState(id, step.state)
}

func (r *run) power(step powerStep, id string) error {
	r.Helper()
	return r.do(step.name, func(ctx context.Context) error { return step.call(ctx, id) })
}

func checkPower(r *run) {
	instance := r.mustCreate(newKey())
	for _, step := range []powerStep{r.powerOn(), r.powerOff(), r.powerOn()} {
		for range repetitions {
			r.mustPower(step, instance.ID)
		}
	}
}

// checkState waits for a state, where the provider tells states.
func (r *run) checkState(id string, wanted provider.InstanceState) {
	r.Helper()
	if !has[provider.Getter](r) {
		return
	}
	r.eventually(func() error {
		got, err := r.get(id)
		if err == nil && got.State != "" && got.State != wanted {
			err = fmt.Errorf("instance %s is %q, not %q", id, got.State, wanted)
		}
		return err
	})
}

func checkPowerAbsent(r *run) {
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		r.checkClass(fmt.Sprintf("%s(%q)", step.name, absentID), r.power(step, absentID), provider.ErrNotFound)
	}
}

// checkPowerDeleted waits, since the cloud may still be deleting.
func checkPowerDeleted(r *run) {
	instance := r.mustCreate(newKey())
	r.mustDelete(instance.ID)
	on := r.powerOn()
	r.checkUnknown("PowerOn", func() error { return r.power(on, instance.ID) })
	r.checkGone(instance.ID)
}

func checkPowerAddress(r *run) {
	made := r.mustCreate(newKey())
	before := r.shown(made.ID)
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		r.mustPower(step, made.ID)
		if got := r.shown(made.ID); !slices.Equal(got.IPs, before.IPs) {
			r.Errorf("instance %s has the addresses %v after %s, before %v", made.ID, got.IPs, step.name, before.IPs)
		}
	}
}

func checkPowerListed(r *run) {
	made := r.mustCreate(newKey())
	r.mustPower(r.powerOff(), made.ID)
	for range quietLists {
		r.checkShows(r.owner, made.ID)
	}
}

func checkPowerContent(r *run) {
	before := r.shown(r.mustCreate(newKey()).ID)
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		r.mustPower(step, before.ID)
		after := r.shown(before.ID)
		if after.Key != before.Key || !maps.Equal(after.Tags, before.Tags) {
			r.Errorf("after %s, instance %s has key %q and tags %v, before %q and %v", step.name, before.ID, after.Key, after.Tags, before.Key, before.Tags)
		}
	}
}

// checkPowerUserData: a guest that keeps nothing on its disk reads its user-data at each boot.
func checkPowerUserData(r *run) {
	c := r.creation(newKey())
	text := comment(len(emptyConfig) + 1000)
	c.config = cloudinit.Raw(text)
	id := r.mustDo(c).ID
	r.mustPower(r.powerOff(), id)
	r.mustPower(r.powerOn(), id)
	r.compareUserData(id, text)
}

func checkPowerConcurrent(r *run) {
	instance := r.mustCreate(newKey())
	for _, step := range []powerStep{r.powerOff(), r.powerOn()} {
		for _, err := range r.atOnce(step.name, func(ctx context.Context) error { return step.call(ctx, instance.ID) }) {
			r.Errorf("%s(%q), called %d times at once: %v", step.name, instance.ID, racers, err)
		}
		r.checkState(instance.ID, step.state)
	}
}
