// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// repetitions is how often an idempotent call is made, racers how many goroutines make
// the same call at once.
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

// race creates the same instance in several goroutines at once, alternating between
// the providers, and checks that all get the same instance.
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

// checkKeyLostReply ends the context at several points during a creation, as if the
// reply was lost, and creates again.
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

// checkListedOnce counts the instances of a key once the list shows one.
// Instances being deleted do not count: a call that was cut off may have
// begun to remove what it had made.
func (r *run) checkListedOnce(key string) {
	r.Helper()
	if !has[provider.Lister](r) {
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

func checkKeyEmpty(r *run) {
	r.checkRefused(r.creation(""), provider.ErrInvalidArgument)
}

// checkKeyUUID uses a key in the form of a UUID: 36 characters.
func checkKeyUUID(r *run) {
	k := newKey()
	r.checkKey(k[:8] + "-" + k[8:12] + "-" + k[12:16] + "-" + k[16:20] + "-" + k[20:32])
}

// maxKey is the longest key.
const maxKey = 64

// checkKeyOdd uses a key of maximal length with all kinds of characters.
func checkKeyOdd(r *run) {
	r.checkKey(("k8s_POD.default-" + newKey())[:maxKey])
}

func (r *run) checkKey(key string) {
	r.Helper()
	first := r.mustCreate(key)
	r.checkSame(first, r.mustCreate(key))
	r.checkListedOnce(key)
}

// checkKeySimilar uses keys that differ only in the last character.
func checkKeySimilar(r *run) {
	key := newKey()
	other := key[:maxKey-1] + "x"
	r.checkDistinct([]*provider.Instance{r.mustCreate(key), r.mustCreate(other)})
}

// checkKeyOtherSpec repeats a creation with another size, pod name and user-data.
func checkKeyOtherSpec(r *run) {
	first := r.creation(newKey())
	made := r.mustDo(first)
	second := first
	second.pod, second.spec = "other", r.spec(first.key, r.owner)
	second.spec.InstanceType, second.spec.VCPUs, second.spec.Memory = "", 1, 512
	second.config = cloudinit.Raw(emptyConfig + "# other\n")
	switch again, err := r.attempt(second); {
	case err != nil:
		r.checkClass("CreateInstance", err, provider.ErrAlreadyExists)
	case again == nil:
		r.Errorf("CreateInstance returned neither an instance nor an error")
	default:
		r.checkSame(made, again)
	}
	r.checkListedOnce(first.key)
}

func checkKeyAfterDelete(r *run) {
	c := r.creation(newKey())
	first := r.mustDo(c)
	r.mustDelete(first.ID)
	second := r.mustDo(c)
	r.checkListedOnce(c.key)
	r.checkFound(second.ID)
	r.mustDelete(second.ID)
	r.checkGone(second.ID)
}

func checkKeyAfterError(r *run) {
	wrong := r.creationFrom(noImage)
	r.attempt(wrong)
	made := r.mustCreate(wrong.key)
	r.checkSame(made, r.mustCreate(wrong.key))
}

// rounds returns how many instances checkRounds makes, one after the other.
func (r *run) rounds() int {
	if r.subject.Slow {
		return 2
	}
	return 5
}

func checkRounds(r *run) {
	for range r.rounds() {
		instance := r.mustCreate(newKey())
		r.mustDelete(instance.ID)
		r.checkGone(instance.ID)
	}
	r.checkLeaks("after some rounds")
}

func checkKeyStopped(r *run) {
	key := newKey()
	first := r.mustCreate(key)
	r.mustPower(r.powerOff(), first.ID)
	r.checkSame(first, r.mustCreate(key))
}
