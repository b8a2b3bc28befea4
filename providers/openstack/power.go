// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff stops the server. Its addresses are the port's, and stay.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power off", instanceID, provider.StateStopped, stop)
}

// PowerOn starts the server.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) error {
	return p.power(ctx, "power on", instanceID, provider.StateRunning, start)
}

func stop(ctx context.Context, c *gophercloud.ServiceClient, id string) error {
	return servers.Stop(ctx, c, id).ExtractErr()
}

func start(ctx context.Context, c *gophercloud.ServiceClient, id string) error {
	return servers.Start(ctx, c, id).ExtractErr()
}

// power changes the state of a server that is not in it.
func (p *Provider) power(ctx context.Context, what, id string, want provider.InstanceState, change func(context.Context, *gophercloud.ServiceClient, string) error) error {
	unlock, err := p.locks.Take(ctx, id)
	if err != nil {
		return classify(fmt.Errorf("%s %s: %w", what, id, err))
	}
	defer unlock()
	c, f, err := p.existing(ctx, id)
	if err == nil && f.server == nil {
		err = fmt.Errorf("%w: instance %s has no server", provider.ErrNotFound, id)
	}
	if err == nil {
		err = p.until(ctx, c, f.server, want, change)
	}
	if err != nil {
		return classify(fmt.Errorf("%s %s: %w", what, id, err))
	}
	return nil
}

// until changes the server and waits for the state. Nova refuses a change while
// another is under way, and one to the state that is there.
func (p *Provider) until(ctx context.Context, c *clients, s *servers.Server, want provider.InstanceState, change func(context.Context, *gophercloud.ServiceClient, string) error) error {
	return p.pace.Until(ctx, func() (bool, error) {
		switch {
		case stateOf(s) == want && s.TaskState == "":
			return true, nil
		case stateOf(s) == provider.StateDeleting:
			return true, fmt.Errorf("%w: server %s is being deleted", provider.ErrNotFound, s.ID)
		case s.TaskState == "" && s.Status != statusBuild:
			if err := change(ctx, c.compute, s.ID); err != nil && !status(err, http.StatusConflict) {
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
