// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/netip"

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

func checkParallel(r *run) { r.checkDistinct(r.createMany()) }

// wait waits for a creation that must succeed. One that fails is an error,
// and returns nil so that the others are waited for.
func (r *run) wait(result <-chan outcome) *provider.Instance {
	r.Helper()
	o := within(r, result, r.subject.Limits.Call+r.subject.Limits.Soon, "CreateInstance")
	switch {
	case o.err != nil:
		r.Errorf("CreateInstance: %v", o.err)
	case o.instance == nil || o.instance.ID == "":
		r.Errorf("CreateInstance returned %+v without an error", o.instance)
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
		for _, addr := range instance.IPs {
			if other := addrs[addr]; other != "" && other != instance.ID {
				r.Errorf("instances %s and %s have the address %s", other, instance.ID, addr)
			}
			addrs[addr] = instance.ID
		}
	}
}
