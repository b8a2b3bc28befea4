// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func BenchmarkCloud(b *testing.B) {
	s := newStand(b, optionsAtOnce)
	cloudsim.Benchmark(b, cloudsim.Bench{
		World: s.World, Provider: s.open(b), Fill: func(tags map[string]string) { s.Fill(1, tags) },
	})
}
