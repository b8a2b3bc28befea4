// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"confidential": func(*Config) {},
		"ordinary": func(c *Config) {
			c.DisableCVM, c.Size, c.UsePublicIP = true, "Standard_D2s_v5", true
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
					Limits: conformance.Limits{Call: 20 * time.Second, Soon: 10 * time.Second, Settle: 10 * time.Second},
				}
			})
		})
	}
}
