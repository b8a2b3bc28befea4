// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

func BenchmarkCloud(b *testing.B) {
	c := newCloud(b, sim.Options{})
	cloudsim.Benchmark(b, cloudsim.Bench{
		World: c.World, Provider: newProvider(b, settings(c)), Fill: func(tags map[string]string) { c.AddForeign(tags) },
	})
}
