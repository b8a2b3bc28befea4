// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
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

// DeleteInstance implements provider.Provider.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	if !names.IsUUID(instanceID) {
		return nil // nothing of ours has such an id
	}
	unlock, err := p.locks.Take(ctx, instanceID)
	if err != nil {
		return err
	}
	defer unlock()
	return p.discard(ctx, instanceID)
}

func (p *Provider) discard(ctx context.Context, id string) error {
	c, err := p.conn.open(ctx)
	if err != nil {
		return err
	}
	return p.pace.Until(ctx, func() (bool, error) {
		// Asked before it is looked: what comes in between is found.
		pending := p.late.pending(id)
		f, err := p.find(ctx, c, id)
		if err != nil {
			return true, err
		}
		return !pending, p.remove(ctx, c, f)
	})
}

// remove deletes everything, the port last: until then the instance is listed.
// A server that was accepted while there was none to be seen is looked for
// again when the port is gone and no other can follow.
func (p *Provider) remove(ctx context.Context, c *clients, f *resources) error {
	if f.nothing() {
		return nil
	}
	if err := p.removeServer(ctx, c, f.server); err != nil {
		return err
	}
	if f.floating != nil {
		err := floatingips.Delete(ctx, c.network, f.floating.ID).ExtractErr()
		if err != nil && !status(err, http.StatusNotFound) {
			return fmt.Errorf("release floating IP %s: %w", f.floating.ID, err)
		}
	}
	if f.port != nil {
		err := ports.Delete(ctx, c.network, f.port.ID).ExtractErr()
		if err != nil && !status(err, http.StatusNotFound) {
			return fmt.Errorf("delete port %s: %w", f.port.ID, err)
		}
	}
	return p.removeLate(ctx, c, f)
}

func (p *Provider) removeLate(ctx context.Context, c *clients, f *resources) error {
	late, err := c.findServers(ctx, f.id)
	if err != nil {
		return err
	}
	for _, s := range late {
		if err := p.removeServer(ctx, c, &s); err != nil {
			return err
		}
	}
	return nil
}

// removeServer deletes a server and waits until it is gone: then its volume is
// too, and its port is free.
func (p *Provider) removeServer(ctx context.Context, c *clients, s *servers.Server) error {
	if s == nil {
		return nil
	}
	asked := false
	return p.pace.Until(ctx, func() (bool, error) {
		if !asked || s.TaskState != "deleting" {
			err := servers.Delete(ctx, c.compute, s.ID).ExtractErr()
			if status(err, http.StatusNotFound) {
				return true, nil
			}
			if err != nil && !status(err, http.StatusConflict) {
				return true, fmt.Errorf("delete server %s: %w", s.ID, err)
			}
			asked = true
		}
		now, err := servers.Get(ctx, c.compute, s.ID).Extract()
		if status(err, http.StatusNotFound) || err == nil && now.Status == statusGone {
			return true, nil
		}
		if err != nil {
			return true, fmt.Errorf("wait for the end of server %s: %w", s.ID, err)
		}
		s = now
		return false, nil
	})
}
