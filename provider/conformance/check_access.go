// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// withoutAccess calls f with each provider that the cloud does not let in.
func (r *run) withoutAccess(f func(why string, p provider.Provider)) {
	r.Helper()
	for _, why := range slices.Sorted(maps.Keys(r.subject.NoAccess)) {
		p := r.subject.checked(r.subject.NoAccess[why]())
		if p == nil {
			continue // it could not even be opened
		}
		r.open = append(r.open, p)
		f(why, p)
	}
}

// wantRefusal wants an error that nobody takes for the proof that something is
// gone.
func (r *run) wantRefusal(call, why string, err error) {
	r.Helper()
	switch {
	case err == nil:
		r.Errorf("%s with %s: no error, although the cloud let nobody look", call, why)
	case errors.Is(err, provider.ErrNotFound):
		r.Errorf("%s with %s has class %q, which callers take for the proof that it is gone; want one such as %q: %v",
			call, why, provider.ErrNotFound, provider.ErrUnauthenticated, err)
	}
}

func checkDeleteNoAccess(r *run) {
	key := newKey()
	made := r.mustCreate(key)
	r.withoutAccess(func(why string, p provider.Provider) {
		r.wantRefusal("DeleteInstance", why, r.deleteBy(p, made.ID))
	})
	r.checkStays(key, made)
}

func checkListNoAccess(r *run) {
	r.withoutAccess(func(why string, p provider.Provider) {
		_, err := call(r, "ListInstances", func(ctx context.Context) ([]provider.Instance, error) {
			return capabilityOf[provider.Lister](r, p).ListInstances(ctx, r.owner)
		})
		r.wantRefusal("ListInstances", why, err)
	})
}

func checkGetNoAccess(r *run) {
	made := r.mustCreate(newKey())
	r.withoutAccess(func(why string, p provider.Provider) {
		_, err := call(r, "GetInstance", func(ctx context.Context) (*provider.Instance, error) {
			return capabilityOf[provider.Getter](r, p).GetInstance(ctx, made.ID)
		})
		r.wantRefusal("GetInstance", why, err)
	})
}

func checkBalancerDeleteNoAccess(r *run) {
	spec := r.balancerSpec()
	r.mustEnsure(spec)
	r.withoutAccess(func(why string, p provider.Provider) {
		r.wantRefusal("DeleteLoadBalancer", why, r.do("DeleteLoadBalancer", func(ctx context.Context) error {
			return capabilityOf[provider.LoadBalancerController](r, p).DeleteLoadBalancer(ctx, spec.Key)
		}))
	})
	if _, err := r.getBalancer(spec.Key); err != nil {
		r.Errorf("GetLoadBalancer after deletions without access: %v", err)
	}
}
