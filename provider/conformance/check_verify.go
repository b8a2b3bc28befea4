// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	"github.com/outrigger/outrigger/provider"
)

func (r *run) verify() error {
	r.Helper()
	return r.do("ConfigVerifier", func(ctx context.Context) error { return provider.VerifyConfig(ctx, r.provider) })
}

func checkVerify(r *run) {
	if err := r.verify(); err != nil {
		r.Errorf("ConfigVerifier: %v", err)
	}
	r.checkLeaks("by ConfigVerifier")
}

// checkTeardown proves by key that the instance is still there: the same key
// gives the same instance, and a new one if it is not.
func checkTeardown(r *run) {
	c := r.creation(newKey())
	made := r.mustDo(c)
	next := r.reopen()
	r.teardown(r.provider)
	r.provider, c.provider = next, next
	r.checkFound(made.ID)
	r.checkSame(made, r.mustDo(c))
}

// checkVerifyRepeated asks one after the other and then at once.
func checkVerifyRepeated(r *run) {
	for range 3 {
		if err := r.verify(); err != nil {
			r.Fatalf("ConfigVerifier, called again: %v", err)
		}
	}
	for _, err := range r.atOnce("ConfigVerifier", func(ctx context.Context) error { return provider.VerifyConfig(ctx, r.provider) }) {
		r.Errorf("ConfigVerifier, called %d times at once: %v", racers, err)
	}
}

func checkVerifyHarmless(r *run) {
	key := newKey()
	made := r.mustCreate(key)
	r.verify()
	r.checkStays(key, made)
	r.checkSame(made, r.mustCreate(key))
}

// checkTeardownThenCalls makes every call on a provider that is closed.
func checkTeardownThenCalls(r *run) {
	next, closed := r.reopen(), r.provider
	r.teardown(closed)
	ctx, cancel := r.callContext()
	defer cancel()
	r.callAll(ctx, closed)
	r.ends(ctx, "ConfigVerifier", func() { provider.VerifyConfig(ctx, closed) })
	r.provider = next
}

// callAll makes every call that does not make an instance, and ends the check
// if one does not return.
func (r *run) callAll(ctx context.Context, p provider.Provider) {
	r.Helper()
	r.ends(ctx, "DeleteInstance", func() { p.DeleteInstance(ctx, absentID) })
	if p, ok := provider.As[provider.Lister](p); ok {
		r.ends(ctx, "ListInstances", func() { p.ListInstances(ctx, r.owner) })
	}
	if p, ok := provider.As[provider.Getter](p); ok {
		r.ends(ctx, "GetInstance", func() { p.GetInstance(ctx, absentID) })
	}
	if p, ok := provider.As[provider.ConsoleReader](p); ok {
		r.ends(ctx, "Console", func() { p.Console(ctx, absentID, 1) })
	}
	if p, ok := provider.As[provider.PowerController](p); ok {
		r.ends(ctx, "PowerOff", func() { p.PowerOff(ctx, absentID) })
		r.ends(ctx, "PowerOn", func() { p.PowerOn(ctx, absentID) })
	}
	if p, ok := provider.As[provider.InstanceTypeLister](p); ok {
		r.ends(ctx, "InstanceTypes", func() { p.InstanceTypes(ctx) })
	}
	if p, ok := provider.As[provider.NodeAddresser](p); ok {
		r.ends(ctx, "NodeAddress", func() { p.NodeAddress(ctx) })
	}
	if p, ok := provider.As[provider.LoadBalancerController](p); ok && r.subject.NoLoadBalancers == "" {
		r.ends(ctx, "GetLoadBalancer", func() { p.GetLoadBalancer(ctx, absentID) })
		r.ends(ctx, "ListLoadBalancers", func() { p.ListLoadBalancers(ctx, r.owner) })
		r.ends(ctx, "DeleteLoadBalancer", func() { p.DeleteLoadBalancer(ctx, absentID) })
	}
	if r.subject.NoDisks == "" {
		r.callDisks(ctx, p)
	}
}

// callDisks is callAll for disks and snapshots.
func (r *run) callDisks(ctx context.Context, p provider.Provider) {
	r.Helper()
	if p, ok := provider.As[provider.DiskController](p); ok {
		r.ends(ctx, "GetDisk", func() { p.GetDisk(ctx, absentID) })
		r.ends(ctx, "ListDisks", func() { p.ListDisks(ctx, r.owner) })
		r.ends(ctx, "DeleteDisk", func() { p.DeleteDisk(ctx, absentID) })
		r.ends(ctx, "AttachDisk", func() { p.AttachDisk(ctx, absentID, absentID) })
		r.ends(ctx, "DetachDisk", func() { p.DetachDisk(ctx, absentID, absentID) })
		r.ends(ctx, "ResizeDisk", func() { p.ResizeDisk(ctx, absentID, 1) })
	}
	if p, ok := provider.As[provider.DiskSnapshotter](p); ok {
		r.ends(ctx, "GetSnapshot", func() { p.GetSnapshot(ctx, absentID) })
		r.ends(ctx, "ListSnapshots", func() { p.ListSnapshots(ctx, r.owner) })
		r.ends(ctx, "DeleteSnapshot", func() { p.DeleteSnapshot(ctx, absentID) })
	}
}
