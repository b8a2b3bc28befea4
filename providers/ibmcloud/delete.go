// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// DeleteInstance implements provider.Provider. The cloud deletes boot volume
// and interfaces with the instance, which this does not wait for.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	var err error
	name, named := strings.CutPrefix(instanceID, byName)
	volume, orphaned := strings.CutPrefix(instanceID, byVolume)
	switch {
	case named && ownName.MatchString(name):
		err = p.discardNamed(ctx, name)
	case orphaned && identifier.MatchString(volume):
		err = p.removeVolume(ctx, volume)
	case identifier.MatchString(instanceID):
		err = p.discard(ctx, instanceID)
	}
	if err != nil {
		return fmt.Errorf("delete instance %s: %w", instanceID, classify(err))
	}
	return nil
}

// discard deletes an instance. One that is busy is asked again.
func (p *Provider) discard(ctx context.Context, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		reply, err := p.api.DeleteInstanceWithContext(ctx, &vpcv1.DeleteInstanceOptions{ID: &id})
		err = refused(reply, err)
		switch {
		case err == nil, isStatus(err, http.StatusNotFound):
			return true, nil
		case isStatus(err, http.StatusConflict):
			return false, nil
		}
		return false, err
	})
}

// looks is how often a name is looked for after a request whose reply got lost:
// the cloud may still be carrying it out.
const looks = 5

// discardNamed deletes the instance of that name, if there is one or one comes
// to light.
func (p *Provider) discardNamed(ctx context.Context, name string) error {
	wait := p.wait.First
	for n := range looks {
		existing, err := p.named(ctx, name)
		if err != nil {
			return err
		}
		if existing != nil {
			return p.discard(ctx, value(existing.ID))
		}
		if n == looks-1 {
			break
		}
		if err := poll.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
		}
		wait = min(2*wait, p.wait.Max)
	}
	return nil
}

// removeVolume deletes a boot volume that has lost its instance.
func (p *Provider) removeVolume(ctx context.Context, id string) error {
	volume, reply, err := p.api.GetVolumeWithContext(ctx, &vpcv1.GetVolumeOptions{ID: &id})
	err = refused(reply, err)
	switch {
	case isStatus(err, http.StatusNotFound):
		return nil
	case err != nil:
		return err
	case tagsOf(volume.UserTags) == nil:
		return nil // somebody else's
	}
	if owner := ownerOf(volume); owner != nil {
		if !ownName.MatchString(value(owner.Name)) {
			return nil
		}
		return p.discard(ctx, value(owner.ID))
	}
	reply, err = p.api.DeleteVolumeWithContext(ctx, &vpcv1.DeleteVolumeOptions{ID: &id})
	if err = refused(reply, err); isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}
