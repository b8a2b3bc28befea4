// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"net/http"
	"strings"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// DeleteInstance implements provider.Provider. The cloud deletes boot volume
// and interfaces with the instance, which this does not wait for.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	name, named := strings.CutPrefix(instanceID, byName)
	volume, orphaned := strings.CutPrefix(instanceID, byVolume)
	switch {
	case named && names.IsHashed(name):
		return p.discardNamed(ctx, name)
	case orphaned && identifier.MatchString(volume):
		return p.removeVolume(ctx, volume)
	case identifier.MatchString(instanceID):
		return p.discard(ctx, instanceID)
	}
	return nil
}

// discard deletes an instance. One that is busy is asked again.
func (p *Provider) discard(ctx context.Context, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		err := order(ctx, p.api.DeleteInstanceWithContext, vpcv1.DeleteInstanceOptions{ID: &id})
		switch {
		case failure.HasStatus(err, http.StatusNotFound):
			return true, nil
		case failure.HasStatus(err, http.StatusConflict):
			return false, nil
		}
		return err == nil, err
	})
}

// looks is how often a name is looked for after a request whose reply got lost:
// the cloud may still be carrying it out.
const looks = 5

// discardNamed deletes the instance of that name, if there is one or one comes
// to light.
func (p *Provider) discardNamed(ctx context.Context, name string) error {
	n := 0
	return p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.named(ctx, name)
		if err == nil && existing != nil {
			return true, p.discard(ctx, value(existing.ID))
		}
		n++
		return n == looks, err
	})
}

// removeVolume deletes a boot volume that has lost its instance.
func (p *Provider) removeVolume(ctx context.Context, id string) error {
	volume, err := ask(ctx, p.api.GetVolumeWithContext, vpcv1.GetVolumeOptions{ID: &id})
	switch {
	case failure.HasStatus(err, http.StatusNotFound):
		return nil
	case err != nil:
		return err
	case tagsOf(volume.UserTags) == nil, !isBoot(volume):
		return nil // somebody else's, or a disk
	}
	if owner := ownerOf(volume); owner != nil {
		if !names.IsHashed(value(owner.Name)) {
			return nil
		}
		return p.discard(ctx, value(owner.ID))
	}
	err = order(ctx, p.api.DeleteVolumeWithContext, vpcv1.DeleteVolumeOptions{ID: &id})
	if failure.HasStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

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
