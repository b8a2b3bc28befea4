// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// These calls are for container runtimes with OCI specs of their own: they take complete
// requests of the agent protocol.

// CreateFrom creates a container from a request as it goes over the wire,
// whose mounts are in the guest already. timeout 0 means [PullTimeout].
func (p *Pod) CreateFrom(ctx context.Context, req *agent.CreateContainerRequest, timeout time.Duration) (*Container, error) {
	if req.GetOCI().GetProcess() == nil {
		return nil, errors.New("CreateContainer: the OCI spec has no process")
	}
	c := p.Container(req.ContainerId, req.OCI.Process.Terminal)
	err := within(ctx, orElse(timeout, PullTimeout), func(ctx context.Context) error {
		_, err := p.agent.CreateContainer(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("CreateContainer: %w", p.lost(err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.containers[req.ContainerId] = c
	return c, nil
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// PlaceMount brings a mount's content into the guest. The storage is nil when
// the mount needs none; otherwise CreateContainer has to carry it.
func (p *Pod) PlaceMount(ctx context.Context, containerID string, m Mount) (*agent.Mount, *agent.Storage, error) {
	return p.placeMount(ctx, containerID, m)
}

// UpdateResources sets the limits. Of the resources only memory and CPU count
// in the guest; they replace what was set; they are not increments.
func (c *Container) UpdateResources(ctx context.Context, res *agent.LinuxResources) error {
	// The shim sends this entry; an agent that took it literally would deny
	// all devices, none does.
	res.Devices = []*agent.LinuxDeviceCgroup{{Access: "rwm"}}
	return within(ctx, CallTimeout, func(ctx context.Context) error {
		_, err := c.pod.agent.UpdateContainer(ctx, &agent.UpdateContainerRequest{ContainerId: c.containerID, Resources: res})
		return c.pod.lost(err)
	})
}
