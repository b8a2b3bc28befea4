// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		s := newStand(t)
		return conformance.Subject{
			Provider: s.mustOpen(t), Limits: cloudsim.Limits,
			Reopen:   func() provider.Provider { return s.mustOpen(t) },
			NoAccess: noAccess(t, s),
			Leaks:    s.leaks,
			Disk:     provider.DiskSpec{Bytes: 1 << 30, Type: "tier3", Zone: sim.Zone}, DisksPerInstance: sim.MaxVolumes,
			WriteDisk: s.WriteDisk, ReadDisk: s.ReadDisk,
			Foreign: func(tags map[string]string) (conformance.Foreign, error) {
				id, remove := s.ForeignVolume("database", encodeTags(tags))
				return conformance.Foreign{DiskID: id, Remove: remove}, nil
			},
			ReadUserData: func(_ context.Context, id string) (string, error) {
				return s.UserData(id)
			},
		}
	})
}

// noAccess are ways in which the cloud lets nobody in.
func noAccess(t testing.TB, s *stand) map[string]func() provider.Provider {
	with := func(change func(*Config)) func() provider.Provider {
		return func() provider.Provider {
			other := &stand{Sim: s.Sim, cfg: s.cfg}
			change(&other.cfg)
			return other.mustOpen(t)
		}
	}
	return map[string]func() provider.Provider{
		"an API key that was deleted":          with(func(c *Config) { c.APIKey = "deleted" }),
		"a service instance that there is not": with(func(c *Config) { c.ServiceInstance = "99999999-0000-4000-8000-000000000000" }),
	}
}

// TestSchedules: nothing is made twice, left over or taken from others,
// whatever fails and whoever crashes.
func TestSchedules(t *testing.T) {
	faults := []cloudsim.Fault{
		cloudsim.LostReply("powervs:pvm-instances.create"), cloudsim.Unreachable("powervs:pvm-instances.create"),
		cloudsim.Slow("powervs:pvm-instances.create", 5*time.Millisecond), cloudsim.GoesOn("powervs:pvm-instances.create", 5*time.Millisecond),
		cloudsim.LostReply("powervs:pvm-instances.delete"), cloudsim.Unreachable("powervs:*"),
		cloudsim.Refused("powervs:pvm-instances.*", http.StatusInternalServerError, "internal").Repeated(3),
		cloudsim.Refused("powervs:pvm-instances.list", http.StatusServiceUnavailable, "unavailable").Repeated(6),
		cloudsim.Refused("powervs:*", http.StatusTooManyRequests, "throttled").Repeated(3),
		cloudsim.Refused("powervs:pvm-instances.create", http.StatusForbidden, "quota"),
		cloudsim.Refused("powervs:pvm-instances.delete", http.StatusConflict, "busy").Repeated(3),
		cloudsim.Refused("powervs:dhcp.*", http.StatusInternalServerError, "internal").Repeated(6),
		cloudsim.Refused("iam:token", http.StatusServiceUnavailable, "unavailable"),
		{Action: sim.LateFailure, Code: "late", Message: "no valid host was found"},
		{Action: sim.LateFailure, Code: "late", Message: "the storage pool is broken"},
	}
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		s := newStand(t)
		if random.IntN(2) == 0 {
			s.cfg.Network = sim.DHCPNetwork
		}
		for _, key := range cloudsim.ScheduleKeys() {
			tags := cloudsim.ForeignTags(key)
			tags[provider.TagKey] = "foreign-" + key // the name has a hash of the key
			s.AddForeign(nameOf("pod", tags[provider.TagKey]), encodeTags(tags))
			s.AddForeign("database"+suffixOf(key), nil) // no tags of ours
		}
		return cloudsim.Stand{World: s.World, Open: func() (provider.Provider, error) { return s.open() }, Faults: faults}
	})
}
