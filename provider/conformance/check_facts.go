// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/netip"
	"reflect"

	"github.com/outrigger/outrigger/provider"
)

func (r *run) types() ([]provider.InstanceType, error) {
	r.Helper()
	return call(r, "InstanceTypes", power[provider.InstanceTypeLister](r).InstanceTypes)
}

func (r *run) nodeAddress() (netip.Addr, error) {
	r.Helper()
	return call(r, "NodeAddress", power[provider.NodeAddresser](r).NodeAddress)
}

func checkTypes(r *run) {
	types, err := r.types()
	if err != nil || len(types) == 0 {
		r.Fatalf("InstanceTypes returned %d types, error %v", len(types), err)
	}
	seen := map[string]bool{}
	for _, t := range types {
		if t.Name == "" || seen[t.Name] {
			r.Errorf("type %q has no name or one that another has", t.Name)
		}
		seen[t.Name] = true
		if t.VCPUs <= 0 || t.Memory <= 0 || t.GPUs < 0 || t.Price < 0 || t.Arch == "" {
			r.Errorf("type %q has no size or architecture: %+v", t.Name, t)
		}
	}
	if named := r.subject.Spec.InstanceType; named != "" && !seen[named] {
		r.Errorf("the catalogue does not have %q, of which instances are made", named)
	}
}

func checkNodeAddress(r *run) {
	addr, err := r.nodeAddress()
	if err != nil || !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		r.Errorf("NodeAddress returned %q, error %v", addr, err)
	}
}

func checkTypesRepeated(r *run) {
	first, err := r.types()
	for range repetitions - 1 {
		again, errAgain := r.types()
		if err != nil || errAgain != nil {
			r.Fatalf("InstanceTypes: %v, and then %v", err, errAgain)
		}
		if !reflect.DeepEqual(first, again) {
			r.Fatalf("InstanceTypes returned %+v and then %+v", first, again)
		}
	}
}

func checkNodeAddressRepeated(r *run) {
	first, err := r.nodeAddress()
	for range repetitions - 1 {
		again, errAgain := r.nodeAddress()
		if err != nil || errAgain != nil || again != first {
			r.Fatalf("NodeAddress returned %s, error %v, and then %s, error %v", first, err, again, errAgain)
		}
	}
}
