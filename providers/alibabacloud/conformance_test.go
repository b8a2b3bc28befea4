// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"fmt"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// TestConformance runs all checks on an instance as simple as can be, and on
// ones with an address of their own.
func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*Config, *provider.InstanceTypeSpec){
		"Plain":  func(*Config, *provider.InstanceTypeSpec) {},
		"Second": func(_ *Config, spec *provider.InstanceTypeSpec) { spec.MultiNic = true },
		"EIP":    func(c *Config, _ *provider.InstanceTypeSpec) { c.UsePublicIP, c.PublicIP = true, publicEIP },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, sim.Options{})
			cfg := settings(c)
			cfg.VSwitchIDs = append(cfg.VSwitchIDs, sim.OtherVSwitch)
			cfg.InstanceTypes = []string{"ecs.g8i.*"}
			var spec provider.InstanceTypeSpec
			change(&cfg, &spec)
			c.SetLag(2)
			conformance.Run(t, func(t *testing.T) conformance.Subject {
				openAs := func(change ...func(*Config)) provider.Provider {
					cfg := cfg
					for _, f := range change {
						f(&cfg)
					}
					p, err := open(cfg, quick(), nil)
					if err != nil {
						t.Fatal(err)
					}
					return p
				}
				reopen := func() provider.Provider { return openAs() }
				balancers := ""
				if name != "Plain" {
					balancers = "addresses of instances are not matter of theirs"
				}
				return conformance.Subject{
					NoLoadBalancers: balancers,
					Provider:        reopen(), Reopen: reopen, Spec: spec, Leaks: leaks(c),
					Limits: cloudsim.Limits,
					NoAccess: map[string]func() provider.Provider{
						// The cloud answers with 404.
						"an access key that was deleted": func() provider.Provider {
							return openAs(func(c *Config) { c.AccessKeyID = "LTAI5tDeletedDeletedDele" })
						},
					},
					ReadUserData: func(_ context.Context, id string) (string, error) { return userData(c, id) },
				}
			})
		})
	}
}

func leaks(c *sim.Cloud) func() ([]string, error) {
	return func() ([]string, error) {
		var left []string
		for _, r := range c.Own() {
			left = append(left, r.String())
		}
		return append(left, c.Violations()...), nil
	}
}

func userData(c *sim.Cloud, id string) (string, error) {
	text, ok := c.UserData(id)
	if !ok {
		return "", fmt.Errorf("no instance %s", id)
	}
	return text, nil
}
