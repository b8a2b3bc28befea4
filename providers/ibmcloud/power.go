// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"net/http"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// PowerOff stops the VM at once and waits until it is stopped.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.power(ctx, instanceID, "stop", provider.StateStopped)
}

// PowerOn starts the VM. It may be out of capacity then.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.power(ctx, instanceID, "start", provider.StateRunning)
}

// power asks until the state is the wanted one. A VM that is on its way from
// one state to the other refuses both.
func (p *Provider) power(ctx context.Context, id, verb string, wanted provider.InstanceState) error {
	asked := false
	return p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.existing(ctx, id)
		if err == nil {
			err = failureOf(existing)
		}
		if err != nil {
			return false, err
		}
		if there := states[value(existing.Status)] == wanted; there || asked {
			return there, nil
		}
		err = p.act(ctx, id, verb)
		if failure.HasStatus(err, http.StatusConflict) {
			return false, nil
		}
		asked = err == nil
		return false, err
	})
}

func (p *Provider) act(ctx context.Context, id, verb string) error {
	options := vpcv1.CreateInstanceActionOptions{InstanceID: &id, Type: &verb}
	if verb == "stop" {
		options.Force = new(true) // to the pod's containers it makes no difference
	}
	_, err := ask(ctx, p.api.CreateInstanceActionWithContext, options)
	return err
}
