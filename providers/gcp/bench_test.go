// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

func BenchmarkCloud(b *testing.B) {
	s := newStand(b)
	cloudsim.Benchmark(b, cloudsim.Bench{World: s.World, Provider: s.mustOpen(b), Fill: func(tags map[string]string) {
		text, err := describe(tags)
		if err != nil {
			b.Fatal(err)
		}
		s.AddForeign(sim.Zones[0], names.Hashed("pod", tags[provider.TagCluster], tags[provider.TagKey]), text, labelsOf(tags))
	}})
}
