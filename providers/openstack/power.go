// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff stops the server. Its addresses are the port's, and stay.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.power(ctx, instanceID, provider.StateStopped, func(c *clients, id string) error {
		return servers.Stop(ctx, c.compute, id).ExtractErr()
	})
}

// PowerOn starts the server.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.power(ctx, instanceID, provider.StateRunning, func(c *clients, id string) error {
		return servers.Start(ctx, c.compute, id).ExtractErr()
	})
}

// power changes the server and waits for the state. Nova refuses a change while
// another is under way, and one to the state that is there.
func (p *Provider) power(ctx context.Context, id string, want provider.InstanceState, change func(*clients, string) error) error {
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	c, s, err := p.server(ctx, id)
	if err != nil {
		return err
	}
	return p.pace.Until(ctx, func() (bool, error) {
		switch {
		case stateOf(s) == want && s.TaskState == "":
			return true, nil
		case stateOf(s) == provider.StateDeleting:
			return true, fmt.Errorf("%w: server %s is being deleted", provider.ErrNotFound, s.ID)
		case s.TaskState == "" && s.Status != statusBuild:
			if err := change(c, s.ID); err != nil && !status(err, http.StatusConflict) {
				return true, err
			}
		}
		now, err := servers.Get(ctx, c.compute, s.ID).Extract()
		if err != nil {
			return true, err
		}
		s = now
		return stateOf(s) == want && s.TaskState == "", nil
	})
}
