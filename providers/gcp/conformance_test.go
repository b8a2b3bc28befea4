// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		s := newStand(t)
		s.MaxPage = 3
		return conformance.Subject{
			Provider: s.mustOpen(t), Limits: cloudsim.Limits,
			Reopen: func() provider.Provider { return s.mustOpen(t) },
			Leaks:  s.leaks,
			Disk:   provider.DiskSpec{Bytes: 10 << 30}, OtherZone: sim.Zones[1], DisksPerInstance: sim.MaxDisks - 1,
			WriteDisk: s.WriteDisk, ReadDisk: s.ReadDisk,
			Foreign: func(tags map[string]string) (conformance.Foreign, error) {
				tags = maps.Clone(tags)
				tags[provider.TagKey] = "somebodys"
				text, err := describe(tags)
				disk, snapshot, remove := s.ForeignDisk(text, labelsOf(tags))
				return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: remove}, err
			},
			NoAccess: map[string]func() provider.Provider{
				"a key that was deleted":      s.with(t, func(c *Config) { c.Credentials = config.Secret(s.Stranger()) }),
				"a project that there is not": s.with(t, func(c *Config) { c.Project = "project-that-is-gone" }),
			},
			ReadUserData: func(_ context.Context, id string) (string, error) {
				return s.UserData(id)
			},
		}
	})
}

// TestSchedules: nothing is made twice, left over or taken from others,
// whatever fails and whoever crashes.
func TestSchedules(t *testing.T) {
	late := func(code string, leftover bool) []cloudsim.Fault {
		var faults []cloudsim.Fault
		for _, zone := range sim.Zones {
			faults = append(faults, cloudsim.Fault{Action: sim.Late("insert", zone), Code: code, Message: "late", After: leftover})
		}
		return faults
	}
	faults := []cloudsim.Fault{
		cloudsim.LostReply("compute.instances.insert"), cloudsim.Unreachable("compute.instances.insert"),
		cloudsim.Slow("compute.instances.insert", 10*time.Millisecond), cloudsim.GoesOn("compute.instances.insert", 10*time.Millisecond),
		cloudsim.LostReply("compute.instances.delete"), cloudsim.Unreachable("compute.*"),
		cloudsim.Refused("compute.instances.*", http.StatusServiceUnavailable, "backendError").Repeated(3),
		cloudsim.Refused("compute.*", http.StatusForbidden, "rateLimitExceeded").Repeated(3),
		cloudsim.Refused("compute.instances.insert", http.StatusForbidden, "quotaExceeded"),
		cloudsim.Refused("compute.instances.get", http.StatusInternalServerError, "internalError").Repeated(6),
		cloudsim.Refused("compute.zoneOperations.*", http.StatusServiceUnavailable, "backendError").Repeated(6),
		cloudsim.Refused("compute.disks.*", http.StatusServiceUnavailable, "backendError").Repeated(6),
		cloudsim.Refused("oauth2.token", http.StatusServiceUnavailable, "temporarily_unavailable"),
	}
	faults = append(faults, late("ZONE_RESOURCE_POOL_EXHAUSTED", false)...)
	faults = append(faults, late("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", true)...)
	faults = append(faults, late("QUOTA_EXCEEDED", true)...)
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		s := standOn(t, cloudsim.NewWorld())
		s.MaxPage = 1 + random.IntN(3)
		s.cfg.Zones = sim.Zones[:1+random.IntN(3)]
		for i, key := range cloudsim.ScheduleKeys() {
			tags := cloudsim.ForeignTags(key)
			text, err := describe(tags)
			if err != nil {
				t.Fatal(err)
			}
			zone := sim.Zones[i%len(sim.Zones)]
			s.AddForeign(zone, names.Hashed(tags[provider.TagPod], tags[provider.TagCluster], key), text, labelsOf(tags))
		}
		return cloudsim.Stand{
			World: s.World, Open: func() (provider.Provider, error) { return s.open() },
			Faults: faults, MaxLag: 3,
		}
	})
}
