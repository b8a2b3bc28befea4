// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"net/http"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff stops the VM at once and waits until it is stopped.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power off", instanceID, "stop", provider.StateStopped)
}

// PowerOn starts the VM. It may be out of capacity then.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power on", instanceID, "start", provider.StateRunning)
}

// power asks until the state is the wanted one. A VM that is on its way from
// one state to the other refuses both.
func (p *Provider) power(ctx context.Context, what, id, verb string, wanted provider.InstanceState) error {
	asked := false
	err := p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.existing(ctx, id)
		if err != nil {
			return false, classify(err)
		}
		if reason := failure(existing); reason != nil {
			return false, reason
		}
		if states[value(existing.Status)] == wanted {
			return true, nil
		}
		if asked {
			return false, nil
		}
		err = p.act(ctx, id, verb)
		if isStatus(err, http.StatusConflict) {
			return false, nil
		}
		asked = err == nil
		return false, classify(err)
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, id, classify(err))
	}
	return nil
}

func (p *Provider) act(ctx context.Context, id, verb string) error {
	options := &vpcv1.CreateInstanceActionOptions{InstanceID: &id, Type: &verb}
	if verb == "stop" {
		options.Force = ptr(true) // to the pod's containers it makes no difference
	}
	_, reply, err := p.api.CreateInstanceActionWithContext(ctx, options)
	return refused(reply, err)
}
