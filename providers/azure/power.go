// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff gives the VM's machine back, so that only its disk and addresses
// cost money. It returns when the VM is off.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", last(instanceID))
	return p.switchPower(ctx, instanceID, func(r ref) error {
		poller, err := p.cloud.vms.BeginDeallocate(ctx, r.group, r.name, nil)
		_, err = wait(ctx, p.tempo.ask, nil, poller, err)
		return err
	})
}

// PowerOn starts the VM and returns when Azure has found a machine for it.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", last(instanceID))
	return p.switchPower(ctx, instanceID, func(r ref) error {
		poller, err := p.cloud.vms.BeginStart(ctx, r.group, r.name, nil)
		_, err = wait(ctx, p.tempo.ask, nil, poller, err)
		return err
	})
}

// switchPower tries again while another operation has the VM.
func (p *Provider) switchPower(ctx context.Context, id string, do func(ref) error) error {
	r, ok := p.parseID(id)
	if !ok {
		return errNoInstance(id)
	}
	return p.tempo.ask.Until(ctx, func() (bool, error) {
		err := do(r)
		if isStatus(err, http.StatusConflict) && !noRoom(classify(err)) {
			return false, p.stays(ctx, r)
		}
		return true, err
	})
}

// stays returns an error for a VM that is not there or on its way out.
func (p *Provider) stays(ctx context.Context, r ref) error {
	vm, err := p.getVM(ctx, r)
	if err == nil && (vm == nil || provisioning(vm) == provisioningDeleting) {
		err = fmt.Errorf("%w: the VM is deleted", provider.ErrNotFound)
	}
	return err
}
