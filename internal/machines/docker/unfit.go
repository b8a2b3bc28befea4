// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// kindsEntrypoint begins what kind's node images start with, in the place of a node agent.
var kindsEntrypoint = []string{"/usr/local/bin/entrypoint", "/sbin/init"}

// checkNodeImage refuses images that are known not to work as machines: this error
// says more than a time-out of the bootstrap.
func (b *Backend) checkNodeImage(ctx context.Context, image string) error {
	result, err := b.engine.ImageInspect(ctx, image)
	if err != nil {
		return fmt.Errorf("look at image %s: %w", image, err)
	}
	if result.Config == nil {
		return nil
	}
	start := slices.Concat(result.Config.Entrypoint, result.Config.Cmd)
	if len(start) < len(kindsEntrypoint) || !slices.Equal(start[:len(kindsEntrypoint)], kindsEntrypoint) {
		return nil
	}
	return because(ReasonImageUnfit, provider.ErrInvalidArgument,
		"image %s is one of kind's: it starts %s, which wants a privileged container, and runs no node-agent; take one of `make node-image`, or one of yours that starts node-agent (docs/capi-docker.md, Node images)", image, strings.Join(start, " "))
}
