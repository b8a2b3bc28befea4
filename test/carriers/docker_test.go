// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

func TestDocker(t *testing.T) {
	e := dockerd.Start(t)
	const balancer = "test/loadbalancer:latest"
	e.Import(t, balancer, map[string]string{"cluster-loadbalancer": stand.Binary(t, "cluster-loadbalancer")}, `ENTRYPOINT ["/cluster-loadbalancer"]`)
	overCarriers(t, "docker", tier.Checks(), func(t *testing.T) []string {
		t.Cleanup(func() { wantNothing(t, e.Containers) })
		return []string{"DOCKER_HOST=" + e.Host, "DOCKER_PODVM_IMAGE=" + dockerd.Image, "DOCKER_LOADBALANCER_IMAGE=" + balancer}
	})
}
