// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		s := newStand(t)
		s.MaxPage = 3
		return conformance.Subject{
			Provider: s.mustOpen(t), Limits: cloudsim.Limits,
			Reopen:   func() provider.Provider { return s.mustOpen(t) },
			NoAccess: noAccess(t, s),
			Leaks:    s.leaks,
			Disk:     provider.DiskSpec{Bytes: 1 << 30, Type: secondGeneration, Zone: sim.Zones[0]}, OtherZone: sim.Zones[1], DisksPerInstance: sim.MaxDataDisks,
			WriteDisk: s.WriteDisk, ReadDisk: s.ReadDisk,
			Foreign: func(tags map[string]string) (conformance.Foreign, error) {
				list, err := userTags(tags)
				disk, snapshot, remove := s.ForeignDisk(list)
				return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: remove}, err
			},
			ReadUserData: func(_ context.Context, id string) (string, error) { return s.UserData(id) },
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
		"an API key that was deleted": with(func(c *Config) { c.APIKey = "deleted" }),
	}
}

// TestSchedules: nothing is made twice, left over or taken from others,
// whatever fails and whoever crashes.
func TestSchedules(t *testing.T) {
	faults := []cloudsim.Fault{
		cloudsim.LostReply("CreateInstance"), cloudsim.Unreachable("CreateInstance"),
		cloudsim.Slow("CreateInstance", 10*time.Millisecond), cloudsim.GoesOn("CreateInstance", 10*time.Millisecond),
		cloudsim.LostReply("DeleteInstance"), cloudsim.Unreachable("*Instance"),
		cloudsim.Refused("*Instance*", http.StatusServiceUnavailable, "service_unavailable").Repeated(3),
		cloudsim.Refused("*", http.StatusTooManyRequests, "rate_limit_exceeded").Repeated(3),
		cloudsim.Refused("CreateInstance", http.StatusForbidden, "over_quota"),
		cloudsim.Refused("CreateInstance", http.StatusServiceUnavailable, "insufficient_capacity").Repeated(6),
		cloudsim.Refused("GetInstance", http.StatusInternalServerError, "internal_error").Repeated(6),
		cloudsim.Refused("*Volume*", http.StatusInternalServerError, "internal_error").Repeated(6),
		cloudsim.Refused("iam.token", http.StatusServiceUnavailable, "unavailable"),
	}
	for _, zone := range sim.Zones {
		for _, reason := range []string{"cannot_start_capacity", "cannot_start_storage"} {
			faults = append(faults, cloudsim.Fault{Action: sim.Late(zone), Code: reason})
		}
	}
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		s := newStand(t)
		s.MaxPage = 1 + random.IntN(3)
		zones := 1 + random.IntN(3)
		s.cfg.Zones, s.cfg.Subnets = sim.Zones[:zones], sim.Subnets[:zones]
		for _, key := range cloudsim.ScheduleKeys() {
			tags := cloudsim.ForeignTags(key)
			list, err := userTags(tags)
			if err != nil {
				t.Fatal(err)
			}
			s.AddForeign(names.Hashed(tags[provider.TagPod], tags[provider.TagCluster], key), list)
		}
		return cloudsim.Stand{
			World: s.World, Open: func() (provider.Provider, error) { return s.open() },
			Faults: faults, MaxLag: 3,
		}
	})
}
