// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"fmt"
	"net/http"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// Actions of "Perform an action on a PVMInstance".
const (
	actionStop  = "immediate-shutdown"
	actionStart = "start"
)

// PowerOff implements provider.PowerController.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.power(ctx, instanceID, actionStop, statusShutoff)
}

// PowerOn implements provider.PowerController.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.power(ctx, instanceID, actionStart, statusActive)
}

// power asks for a state and waits for it. The cloud refuses while it is busy
// with the VM.
func (p *Provider) power(ctx context.Context, id, action, status string) error {
	asked := false
	return p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.existing(ctx, id)
		if err != nil || existing.status() == status {
			return true, err
		}
		if asked || existing.status() == statusBuild {
			return false, nil
		}
		err = p.api.send(ctx, http.MethodPost, "/pvm-instances/"+id+"/action", map[string]string{"action": action}, nil)
		if failure.HasStatus(err, http.StatusConflict) {
			return false, nil
		}
		asked = err == nil
		return false, err
	})
}

// DeleteInstance implements provider.Provider. The VM's disk and interface go
// with it.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	if !token.MatchString(instanceID) {
		return nil // never one of the cloud's
	}
	ctx, done := p.api.life.Begin(ctx)
	defer done()
	existing, err := p.getVM(ctx, instanceID)
	switch {
	case err != nil || existing == nil:
		return err
	case !ours(existing):
		return fmt.Errorf("%w: it is somebody else's", provider.ErrPermissionDenied)
	}
	return p.remove(ctx, instanceID)
}

// remove deletes until the cloud has accepted it: it refuses while a VM is
// being built.
func (p *Provider) remove(ctx context.Context, id string) error {
	ended := false // whether the build had ended at the last refusal
	return p.wait.Until(ctx, func() (bool, error) {
		err := p.api.send(ctx, http.MethodDelete, "/pvm-instances/"+id, nil, nil)
		switch {
		case err == nil, failure.HasStatus(err, http.StatusNotFound, http.StatusGone):
			return true, nil
		case failure.HasStatus(err, http.StatusConflict):
			return false, nil
		case failure.HasStatus(err, http.StatusBadRequest):
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
