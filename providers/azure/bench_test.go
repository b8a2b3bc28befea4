// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// BenchmarkCloud has large pages: how many items one has is the cloud's affair.
func BenchmarkCloud(b *testing.B) {
	s := newStand(b, azuresim.Options{PageSize: 1000})
	cloudsim.Benchmark(b, cloudsim.Bench{World: s.cloud.World, Provider: s.Provider, Fill: func(tags map[string]string) {
		s.cloud.AddForeign(vmName(tags[provider.TagCluster], tags[provider.TagKey]), tags)
	}})
}
