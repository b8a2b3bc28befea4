// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

func BenchmarkCloud(b *testing.B) {
	c := sim.Start(b)
	c.PageSize = 1000
	cloudsim.Benchmark(b, cloudsim.Bench{World: c.World, Provider: mustOpen(b, simConfig(c)), Fill: func(tags map[string]string) {
		id := instanceID(tags[provider.TagKey])
		c.AddForeignAs(id, "podvm-pod-"+id[:8], macOf(id), tags)
	}})
}
