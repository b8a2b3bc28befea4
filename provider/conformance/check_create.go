// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/outrigger/outrigger/provider"
)

func checkCreate(r *run) {
	instance := r.mustCreate(newKey())
	if instance.Name == "" {
		r.Errorf("instance %s has no name", instance.ID)
	}
	r.checkAddresses(instance)
}

func (r *run) checkAddresses(instance *provider.Instance) {
	r.Helper()
	if len(instance.IPs) == 0 {
		r.Errorf("instance %s has no address", instance.ID)
	}
	seen := map[netip.Addr]bool{}
	for _, addr := range instance.IPs {
		if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
			r.Errorf("instance %s has address %q, which nobody can reach", instance.ID, addr)
		}
		if seen[addr] {
			r.Errorf("instance %s has address %s twice", instance.ID, addr)
		}
		seen[addr] = true
	}
}

// generator counts how often it is asked.
type generator struct {
	text  string
	err   error
	calls atomic.Int32
}

func (g *generator) Generate() (string, error) {
	g.calls.Add(1)
	return g.text, g.err
}

func checkUserDataOnce(r *run) {
	c, g := r.creation(newKey()), &generator{text: r.subject.UserData}
	c.config = g
	r.mustDo(c)
	if n := g.calls.Load(); n != 1 {
		r.Errorf("the user-data was generated %d times", n)
	}
}

func checkUserDataError(r *run) {
	c, cause := r.creation(newKey()), errors.New("no entropy")
	c.config = &generator{err: cause}
	instance, err := r.attempt(c)
	if err == nil {
		r.Fatalf("CreateInstance answered %+v though there is no user-data", instance)
	}
	if !errors.Is(err, cause) {
		r.Errorf("the error does not wrap that of the user-data: %v", err)
	}
}

func checkUnknownType(r *run) {
	c := r.creation(newKey())
	c.spec.InstanceType = "outrigger-no-such-type"
	r.checkRefused(c)
}

func checkUnknownImage(r *run) {
	c := r.creation(newKey())
	c.spec.Image = "outrigger-no-such-image"
	r.checkRefused(c)
}

func (r *run) checkRefused(c creation) {
	r.Helper()
	instance, err := r.attempt(c)
	if err == nil {
		r.Fatalf("CreateInstance answered %+v", instance)
	}
	r.checkClass(err, provider.ErrInvalidArgument, provider.ErrNotFound)
}

func (r *run) checkClass(err error, allowed ...error) {
	r.Helper()
	for _, class := range allowed {
		if errors.Is(err, class) {
			return
		}
	}
	r.Errorf("error %q has class %q, not %q", err, provider.Class(err), allowed)
}

func checkParallel(r *run) {
	var started []<-chan outcome
	ctx, cancel := r.callContext()
	defer cancel()
	for range r.subject.Parallel {
		started = append(started, r.start(ctx, r.creation(newKey())))
	}
	var made []*provider.Instance
	for _, result := range started {
		made = append(made, r.wait(result))
	}
	r.checkDistinct(made)
}

// wait waits for a creation that must succeed. One that fails is an error,
// and answers nil so that the others are waited for.
func (r *run) wait(result <-chan outcome) *provider.Instance {
	r.Helper()
	o := within(r, result, r.subject.Limits.Call+r.subject.Limits.Soon, "CreateInstance")
	switch {
	case o.err != nil:
		r.Errorf("CreateInstance: %v", o.err)
	case o.instance == nil || o.instance.ID == "":
		r.Errorf("CreateInstance answered %+v without an error", o.instance)
	default:
		return o.instance
	}
	return nil
}

func (r *run) checkDistinct(made []*provider.Instance) {
	r.Helper()
	ids, addrs := map[string]bool{}, map[netip.Addr]string{}
	for _, instance := range made {
		if instance == nil {
			continue
		}
		if ids[instance.ID] {
			r.Errorf("two instances have the id %s", instance.ID)
		}
		ids[instance.ID] = true
		r.checkAddresses(instance)
		for _, addr := range instance.IPs {
			if other := addrs[addr]; other != "" && other != instance.ID {
				r.Errorf("instances %s and %s have the address %s", other, instance.ID, addr)
			}
			addrs[addr] = instance.ID
		}
	}
}
