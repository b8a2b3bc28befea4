// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// Stop ends the container as CRI StopContainer does: SIGTERM, then SIGKILL
// after the grace period. Its exit status is returned.
func (c *Container) Stop(ctx context.Context, grace time.Duration) (int, error) {
	if err := c.Signal(ctx, syscall.SIGTERM); err != nil {
		return 0, err
	}
	soft, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if status, err := c.Wait(soft); err == nil || soft.Err() == nil || ctx.Err() != nil {
		return status, err
	}
	if err := c.Signal(ctx, syscall.SIGKILL); err != nil {
		return 0, err
	}
	return c.Wait(ctx)
}

// Remove kills what is left of the container and removes it, with the same
// calls as the shim: signal 9 and a second WaitProcess come in any case.
func (c *Container) Remove(ctx context.Context) error {
	c.pod.mu.Lock()
	done := c.removed
	c.removed = true
	delete(c.pod.containers, c.containerID)
	c.pod.mu.Unlock()
	if done {
		return nil
	}
	if err := c.killAndWait(ctx); err != nil {
		return fmt.Errorf("removing container %s: %w", c.containerID, err)
	}
	req := &agent.RemoveContainerRequest{ContainerId: c.containerID}
	if _, err := ask(ctx, c.pod, "RemoveContainer", CallTimeout, c.pod.agent.RemoveContainer, req); err != nil {
		return err
	}
	_, err := ask(ctx, c.pod, "RemoveStaleVirtiofsShareMounts", CallTimeout,
		c.pod.agent.RemoveStaleVirtiofsShareMounts, &agent.RemoveStaleVirtiofsShareMountsRequest{})
	return err
}

func (c *Container) killAndWait(ctx context.Context) error {
	if err := c.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	req := &agent.WaitProcessRequest{ContainerId: c.containerID, ExecId: c.execID}
	_, err := ask(ctx, c.pod, "WaitProcess", CallTimeout, c.pod.agent.WaitProcess, req)
	return err
}

// Stop removes all containers, the sandbox and the VM. Calls that the agent
// does not answer any more are skipped: the VM is removed in any case, and only
// StopVM's error is returned. Repeating Stop is harmless.
func (p *Pod) Stop(ctx context.Context) error {
	p.mu.Lock()
	again := p.stopped
	p.stopped = true
	p.mu.Unlock()
	if again {
		return nil
	}
	if err := p.stopGuest(ctx); err != nil {
		p.client.logger().Warn("guest did not stop cleanly; removing its VM", "sandbox", p.spec.ID, "error", err)
	}
	p.Close()
	return p.client.StopVM(ctx, p.spec.ID)
}

// stopGuest does what the shim's StopPodSandbox does, up to DestroySandbox.
func (p *Pod) stopGuest(ctx context.Context) error {
	if p.agent == nil || p.Err() != nil {
		return nil
	}
	var errs []error
	p.mu.Lock()
	containers := slices.Collect(maps.Values(p.containers))
	p.mu.Unlock()
	for _, c := range containers {
		if c != p.pause {
			errs = append(errs, c.Remove(ctx))
		}
	}
	if p.pause != nil {
		errs = append(errs, p.pause.Signal(ctx, syscall.SIGKILL), p.pause.Remove(ctx))
	}
	_, err := ask(ctx, p, "DestroySandbox", CallTimeout, p.agent.DestroySandbox, &agent.DestroySandboxRequest{})
	return errors.Join(append(errs, err)...)
}
