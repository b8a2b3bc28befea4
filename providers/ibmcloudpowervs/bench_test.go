// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

func BenchmarkCloud(b *testing.B) {
	s := newStand(b)
	cloudsim.Benchmark(b, cloudsim.Bench{World: s.World, Provider: s.mustOpen(b), Fill: func(tags map[string]string) {
		s.AddForeign(nameOf("pod", tags[provider.TagKey]), encodeTags(tags))
	}})
}
