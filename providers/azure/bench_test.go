// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// BenchmarkCreateDelete tells the calls of an instance's life.
func BenchmarkCreateDelete(b *testing.B) {
	s := newStand(b, azuresim.Options{})
	for b.Loop() {
		s.mustDelete(s.mustCreate("key-1").ID)
		s.wantNothing()
	}
	calls := s.cloud.World.Calls()
	for name, action := range map[string]string{"PUT/op": "virtualMachines/write", "GET/op": "virtualMachines/read", "DELETE/op": "virtualMachines/delete"} {
		b.ReportMetric(float64(calls[compute+action])/float64(b.N), name)
	}
}

// BenchmarkList lists 10,000 instances, in large pages: how
// many an answer has is the cloud's affair, and so is the time for each.
func BenchmarkList(b *testing.B) {
	s := newStand(b, azuresim.Options{PageSize: 5000})
	for i := range 10_000 {
		key := fmt.Sprint("key-", i)
		s.cloud.AddForeign(vmName("schedules", key), cloudsim.OwnerTags(key))
	}
	for b.Loop() {
		list, err := s.ListInstances(b.Context(), map[string]string{provider.TagCluster: "schedules"})
		if err != nil || len(list) != 10_000 {
			b.Fatalf("%d instances, %v", len(list), err)
		}
	}
}
