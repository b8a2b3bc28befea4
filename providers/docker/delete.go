// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// DeleteInstance implements provider.Provider. The container's layers and
// volumes go with it; disks are detached.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	if !isID(instanceID) {
		return nil // never one of the engine's
	}
	if err := p.negotiateVersion(ctx); err != nil {
		return fmt.Errorf("delete instance %s: %w", instanceID, err)
	}
	c, err := p.inspect(ctx, instanceID)
	switch {
	case err != nil:
		return fmt.Errorf("delete instance %s: %w", instanceID, classify(err))
	case c == nil:
	case !ours(c.Config.Labels):
		return fmt.Errorf("%w: delete instance %s: the container is somebody else's", provider.ErrPermissionDenied, instanceID)
	}
	if err = p.remove(ctx, instanceID); err == nil {
		err = p.releaseDisks(ctx, instanceID)
	}
	if err != nil {
		return fmt.Errorf("delete instance %s: %w", instanceID, classify(err))
	}
	return nil
}

// remove asks again as long as the engine says that a removal is under way: one
// that fails leaves the container, and nobody else would remove it.
func (p *Provider) remove(ctx context.Context, id string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		_, err := p.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return true, nil
		case errdefs.IsConflict(err):
			return false, nil
		}
		return false, err
	})
}

// Console implements provider.ConsoleReader: the output of the container's
// terminal.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	if _, err := p.existing(ctx, instanceID); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	logs, err := p.engine.ContainerLogs(ctx, instanceID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return nil, fmt.Errorf("console of %s: %w", instanceID, classify(err))
	}
	defer logs.Close()
	// The engine keeps 4 MB; see make.
	output, err := io.ReadAll(logs)
	if err != nil {
		return nil, fmt.Errorf("console of %s: %w", instanceID, classify(err))
	}
	return output[max(0, int64(len(output))-tailBytes):], nil
}
