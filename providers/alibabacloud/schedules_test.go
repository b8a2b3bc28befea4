// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// faults are what may befall a call. Those that say no for good are repeated by
// the script alone.
var faults = []cloudsim.Fault{
	cloudsim.LostReply("ecs:RunInstances"),
	cloudsim.LostReply("ecs:RunInstances").Repeated(4), // as often as a call is tried
	cloudsim.LostReply("ecs:DeleteInstance"),
	cloudsim.LostReply("vpc:*"),
	cloudsim.LostReply("*").Repeated(5),
	cloudsim.Unreachable("*").Repeated(3),
	cloudsim.Slow("*", 15*time.Millisecond),
	cloudsim.Slow("ecs:RunInstances", 30*time.Millisecond), cloudsim.GoesOn("ecs:RunInstances", 30*time.Millisecond),
	cloudsim.Refused("*", 400, "Throttling.User").Repeated(3),
	cloudsim.Refused("ecs:RunInstances", 403, "OperationDenied.NoStock"),
	cloudsim.Refused("ecs:RunInstances", 403, "QuotaExceed.ElasticQuota"),
	cloudsim.Refused("ecs:RunInstances", 400, "Idempotence.Processing").Repeated(2),
	cloudsim.Refused("ecs:DeleteInstance", 403, "IncorrectInstanceStatus").Repeated(2),
	cloudsim.Refused("ecs:*", 500, "InternalError").Repeated(4),
	cloudsim.Refused("vpc:AllocateEipAddress", 400, "QuotaExceeded.Eip"),
	cloudsim.Refused("vpc:AssociateEipAddress", 403, "Forbidden.RAM"),
	cloudsim.Refused("vpc:*", 503, "ServiceUnavailable").Repeated(4),
	cloudsim.Refused("ecs:TagResources", 500, "InternalError").Repeated(4),
}

// TestSchedules draws the configuration too.
func TestSchedules(t *testing.T) {
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		c := newCloud(t, sim.Options{RemembersFailures: random.IntN(4) == 0})
		cfg := settings(c)
		var spec provider.InstanceTypeSpec
		var untagged []string
		switch random.IntN(3) {
		case 0:
			// The second interface of an instance that is not finished has no tags yet.
			spec.MultiNic, untagged = true, []string{cloudsim.KindNIC}
		case 1:
			cfg.UsePublicIP, cfg.PublicIP = true, publicEIP
		}
		if random.IntN(2) == 0 {
			cfg.VSwitchIDs = append(cfg.VSwitchIDs, sim.OtherVSwitch)
		}
		for _, key := range cloudsim.ScheduleKeys() {
			c.AddForeign(cloudsim.ForeignTags(key))
		}
		return cloudsim.Stand{
			World: c.World, Spec: spec, Faults: faults, MaxLag: 3, Untagged: untagged,
			Open: func() (provider.Provider, error) { return open(cfg, quick(), cloudsim.DialLoopback) },
		}
	})
}
