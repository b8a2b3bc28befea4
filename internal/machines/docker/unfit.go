// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/outrigger/outrigger/provider"
)

// checkFamily refuses a cluster that needs an address family that its network
// does not have.
func checkFamily(cluster *clusterv1.Cluster) error {
	if cluster == nil {
		return nil
	}
	for field, blocks := range map[string][]string{
		"pods": cluster.Spec.ClusterNetwork.Pods.CIDRBlocks, "services": cluster.Spec.ClusterNetwork.Services.CIDRBlocks,
	} {
		for _, block := range blocks {
			if p, err := netip.ParsePrefix(block); err == nil && p.Addr().Is6() {
				return because(ReasonIPFamily, provider.ErrInvalidArgument,
					"spec.clusterNetwork.%s.cidrBlocks of Cluster %s has %s: networks of the Docker kinds are IPv4 alone, and so are their machines and load balancers; name IPv4 ranges, or make the cluster of machines in a cloud", field, cluster.Name, block)
			}
		}
	}
	return nil
}

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
