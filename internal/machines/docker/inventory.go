// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

var _ reconciler.Inventory = (*Backend)(nil)

// Owned implements [reconciler.Inventory]: containers and volumes of machines, the
// containers first. A slow engine may create one after its caller has given up,
// and then the machine may be gone.
func (b *Backend) Owned(ctx context.Context, s *reconciler.ClusterScope) ([]reconciler.Owned, error) {
	list, err := b.containers(ctx, labelCluster, s.Key)
	if err != nil {
		return nil, classify(err)
	}
	var owned []reconciler.Owned
	for _, c := range list {
		if ofMachine(c.Labels) && c.State != container.StateRemoving {
			owned = append(owned, reconciler.Owned{ID: containerPrefix + c.ID, Key: c.Labels[labelKey], Created: time.Unix(c.Created, 0)})
		}
	}
	volumes, err := b.engine.VolumeList(ctx, client.VolumeListOptions{Filters: filter(labelCluster, s.Key)})
	if err != nil {
		return nil, classify(fmt.Errorf("list volumes: %w", err))
	}
	for _, v := range volumes.Items {
		if has(v.Labels, labelCluster, s.Key) && ofMachine(v.Labels) {
			made, _ := time.Parse(time.RFC3339, v.CreatedAt)
			owned = append(owned, reconciler.Owned{ID: volumePrefix + v.Name, Key: v.Labels[labelKey], Created: made})
		}
	}
	return owned, nil
}

// Prefixes of the ids of resources, before the engine's own name.
const (
	containerPrefix = "container "
	volumePrefix    = "volume "
)

func ofMachine(labels map[string]string) bool {
	return slices.Contains([]string{roleControlPlane, roleWorker}, labels[labelRole])
}

// Remove implements [reconciler.Inventory].
func (b *Backend) Remove(ctx context.Context, _ *reconciler.ClusterScope, id string) error {
	if name, ok := strings.CutPrefix(id, volumePrefix); ok {
		return classify(b.removeVolume(ctx, name))
	}
	name, ok := strings.CutPrefix(id, containerPrefix)
	if !ok {
		return fmt.Errorf("%w: %q is neither a container nor a volume", provider.ErrInvalidArgument, id)
	}
	c, err := b.inspect(ctx, name)
	if err != nil || c == nil {
		return classify(err)
	}
	return classify(b.removeMachine(ctx, c.ID, c.Config.Labels))
}
