// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"net/http"

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
