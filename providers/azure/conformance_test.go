// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"confidential": func(*Config) {},
		"ordinary": func(c *Config) {
			c.DisableCVM, c.Size, c.UsePublicIP, c.Zones = true, "Standard_D2s_v5", true, []string{"1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) conformance.Subject {
				t.Parallel()
				s := newStand(t, azuresim.Options{}, change)
				return conformance.Subject{
					Provider: s.Provider,
					Reopen:   func() provider.Provider { return s.reopen() },
					Leaks:    s.cloud.Leaks,
					ReadUserData: func(_ context.Context, id string) (string, error) {
						return s.cloud.UserData(id)
					},
					Limits: cloudsim.Limits, DisksPerInstance: 4, OtherZone: "2",
					WriteDisk: s.cloud.WriteDisk, ReadDisk: s.cloud.ReadDisk,
					Foreign: func(tags map[string]string) (conformance.Foreign, error) {
						disk, snapshot, remove := s.cloud.ForeignDisk(tags)
						return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: remove}, nil
					},
					NoAccess: map[string]func() provider.Provider{
						"a client secret that was revoked": func() provider.Provider {
							return s.reopenAs(func(c *Config) { c.TokenFile, c.ClientSecret = "", "revoked" })
						},
						"a subscription that there is not": func() provider.Provider {
							return s.reopenAs(func(c *Config) { c.SubscriptionID = "99999999-2222-3333-4444-555555555555" })
						},
					},
				}
			})
		})
	}
}
