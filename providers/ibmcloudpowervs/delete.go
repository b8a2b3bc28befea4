// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"fmt"
	"net/http"

	"github.com/outrigger/outrigger/provider"
)

// DeleteInstance implements provider.Provider. The VM's disk and interface go
// with it.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	defer p.began().Done()
	if !token.MatchString(instanceID) {
		return nil // never one of the cloud's
	}
	ctx, cancel := p.api.bound(ctx)
	defer cancel()
	existing, err := p.getVM(ctx, instanceID)
	switch {
	case err != nil:
		return fmt.Errorf("delete instance %s: %w", instanceID, classify(err))
	case existing == nil:
		return nil
	case !ours(existing):
		return fmt.Errorf("%w: delete instance %s: it is somebody else's", provider.ErrPermissionDenied, instanceID)
	}
	if err := p.remove(ctx, instanceID); err != nil {
		return fmt.Errorf("delete instance %s: %w", instanceID, classify(err))
	}
	return nil
}

// remove deletes until the cloud has accepted it: it refuses while a VM is
// being built.
func (p *Provider) remove(ctx context.Context, id string) error {
	ended := false // whether the build had ended at the last refusal
	return p.wait.Until(ctx, func() (bool, error) {
		err := p.api.send(ctx, http.MethodDelete, "/pvm-instances/"+id, nil, nil)
		switch {
		case err == nil, isStatus(err, http.StatusNotFound), isStatus(err, http.StatusGone):
			return true, nil
		case isStatus(err, http.StatusConflict):
			return false, nil
		case isStatus(err, http.StatusBadRequest):
			existing, lookErr := p.getVM(ctx, id)
			switch {
			case lookErr == nil && existing == nil:
				return true, nil
			case lookErr == nil && !ended:
				ended = existing.status() != statusBuild // perhaps since the refusal: again
				return false, nil
			}
		}
		return false, err
	})
}
