// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/test/cloudsim"
)

func BenchmarkCloud(b *testing.B) {
	s := newStand(b)
	cloudsim.Benchmark(b, cloudsim.Bench{World: s.World, Provider: s.mustOpen(b), Fill: func(tags map[string]string) {
		list, err := userTags(tags)
		if err != nil {
			b.Fatal(err)
		}
		s.AddForeign(names.Hashed("pod", tags[provider.TagCluster], tags[provider.TagKey]), list)
	}})
}
