// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// BenchmarkCloud has fewer VMs than others: vcsim needs minutes to make ten
// thousand.
func BenchmarkCloud(b *testing.B) {
	s := sim.Start(b)
	cloudsim.Benchmark(b, cloudsim.Bench{World: s.World, Provider: mustOpen(b, simConfig(s)), Instances: 2000, Fill: func(tags map[string]string) {
		option, err := record{Key: tags[provider.TagKey], Tags: tags}.option()
		if err != nil {
			b.Fatal(err)
		}
		s.AddForeign(b, vmName(instanceID(tags[provider.TagKey])), tags, option)
	}})
}
