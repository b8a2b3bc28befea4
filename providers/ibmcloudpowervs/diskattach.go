// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// AttachDisk implements provider.DiskController.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	if !token.MatchString(instanceID) {
		return nil, fmt.Errorf("%w: no instance %.100q", provider.ErrNotFound, instanceID)
	}
	err = p.wait.Until(ctx, func() (bool, error) {
		made, err = p.attachStep(ctx, diskID, instanceID)
		return made != nil, err
	})
	return made, err
}

// attachStep returns the attachment if the instance has the disk, and nil after it has brought that nearer.
func (p *Provider) attachStep(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	i, err := p.getVM(ctx, instanceID)
	if err == nil && i == nil {
		err = fmt.Errorf("%w: no instance %s in workspace %s", provider.ErrNotFound, instanceID, p.cfg.ServiceInstance)
	}
	if err != nil {
		return nil, err
	}
	v, err := p.look(ctx, kindDisk, diskID)
	if err != nil {
		return nil, err
	}
	switch state := i.state(); {
	case v.instance() != "" && !slices.Contains(v.Instances, instanceID):
		return nil, inUse(v)
	case state != provider.StateRunning && state != provider.StateStopped:
		return nil, fmt.Errorf("%w: the instance is in state %s", provider.ErrUnavailable, i.status())
	case v.instance() != "" && v.State == stateInUse && v.WWN != "":
		return p.attached(ctx, v, instanceID)
	case v.State != stateAvailable:
		return nil, nil
	}
	err = p.api.send(ctx, http.MethodPost, attachmentOf(diskID, instanceID), nil, nil)
	switch {
	case failure.HasStatus(err, http.StatusConflict):
		return nil, nil // who has it, the next look tells
	case failure.HasStatus(err, http.StatusBadRequest):
		if again, lookErr := p.look(ctx, kindDisk, diskID); lookErr == nil && again.State != stateAvailable {
			return nil, nil
		}
	}
	return nil, err
}

func attachmentOf(diskID, instanceID string) string {
	return "/pvm-instances/" + instanceID + "/volumes/" + diskID
}

// attached returns the attachment of a disk, after it has seen to it that the disk does not go with the instance.
func (p *Provider) attached(ctx context.Context, v *volume, instanceID string) (*provider.Attachment, error) {
	var has struct {
		Goes bool `json:"deleteOnTermination"`
	}
	err := p.api.send(ctx, http.MethodGet, attachmentOf(v.ID, instanceID), nil, &has)
	if err == nil && has.Goes {
		err = p.api.send(ctx, http.MethodPut, attachmentOf(v.ID, instanceID), map[string]bool{"deleteOnTermination": false}, nil)
	}
	switch {
	case failure.HasStatus(err, http.StatusNotFound, http.StatusConflict):
		return nil, nil // it goes just now
	case err != nil:
		return nil, err
	}
	return &provider.Attachment{Serial: provider.SerialOfWWN(strings.ToLower(v.WWN))}, nil
}

// DetachDisk implements provider.DiskController.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	return p.wait.Until(ctx, func() (bool, error) {
		v, err := p.look(ctx, kindDisk, diskID)
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && !slices.Contains(v.Instances, instanceID):
			return true, nil
		case err != nil:
			return false, err
		case v.State != stateInUse:
			return false, nil
		}
		err = p.api.send(ctx, http.MethodDelete, attachmentOf(diskID, instanceID), nil, nil)
		if failure.HasStatus(err, http.StatusConflict, http.StatusNotFound) {
			err = nil // the cloud is busy with one of them, or it goes just now
		}
		return false, err
	})
}
