// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"fmt"
	"net/http"
)

// Actions of "Perform an action on a PVMInstance".
const (
	actionStop  = "immediate-shutdown"
	actionStart = "start"
)

// PowerOff implements provider.PowerController.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power off", instanceID, actionStop, statusShutoff)
}

// PowerOn implements provider.PowerController.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power on", instanceID, actionStart, statusActive)
}

// power asks for a state and waits for it. The cloud refuses while it is busy
// with the VM.
func (p *Provider) power(ctx context.Context, what, id, action, status string) error {
	if _, err := p.existing(ctx, id); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	asked := false
	err := p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.existing(ctx, id)
		if err != nil || existing.status() == status {
			return true, err
		}
		if asked || existing.status() == statusBuild {
			return false, nil
		}
		err = p.api.send(ctx, http.MethodPost, "/pvm-instances/"+id+"/action", map[string]string{"action": action}, nil)
		if isStatus(err, http.StatusConflict) {
			return false, nil
		}
		asked = err == nil
		return false, err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, classify(err))
	}
	return nil
}
