// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"fmt"
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// TestClockJumps: how long a cloud may take to show an instance that was asked for is
// measured in time that passes. A clock that jumps ahead has no machine forgotten
// early, and one that jumps back keeps none.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			const settle = 10 * time.Minute
			s := newStand(t, func(o *managerOptions) { o.settle = settle })
			s.cloud.Inject(fake.Fault{Op: fake.OpCreate, Times: -1, Err: fmt.Errorf("%w: no answer", provider.ErrUnavailable)})
			s.addCluster()
			s.addMachine("m")
			s.bootstrap("m")
			s.until("an instance was asked for", func() bool { return s.cloud.Calls(fake.OpCreate) > 0 })
			s.delete(&clusterv1.Machine{}, "m")
			looks := s.cloud.Calls(fake.OpList)
			s.until("its deletion has looked", func() bool { return s.cloud.Calls(fake.OpList) > looks })
			s.clock.jump(jump)
			looks = s.cloud.Calls(fake.OpList)
			s.until("it has looked again", func() bool { return s.cloud.Calls(fake.OpList) > looks+1 })
			if s.gone("m")() {
				t.Fatal("the machine is gone before the cloud can show its instance")
			}
			s.clock.advance(settle)
			s.until("it is gone", s.gone("m"))
		})
	}
}
