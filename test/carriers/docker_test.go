// SPDX-License-Identifier: Apache-2.0

//go:build integration

package carriers

import (
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
)

func TestDocker(t *testing.T) {
	e := dockerd.Start(t)
	overCarriers(t, "docker", some, func(t *testing.T) []string {
		t.Cleanup(func() { wantNothing(t, e.Containers) })
		return []string{"DOCKER_HOST=" + e.Host, "DOCKER_PODVM_IMAGE=" + dockerd.Image}
	})
}
