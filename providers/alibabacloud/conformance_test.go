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
					return &using{p, c}
				}
				reopen := func() provider.Provider { return openAs() }
				balancers := ""
				if name != "Plain" {
					balancers = "addresses of instances are not matter of theirs"
				}
				return conformance.Subject{
					NoLoadBalancers: balancers,
					Provider:        reopen(), Reopen: reopen, Spec: spec, Leaks: leaks(c),
					Limits: cloudsim.Limits, Disk: provider.DiskSpec{Bytes: 20 << 30, Zone: sim.Zone}, OtherZone: sim.OtherZone, DisksPerInstance: sim.MaxDataDisks,
					WriteDisk: c.WriteDisk, ReadDisk: c.ReadDisk,
					Foreign: func(tags map[string]string) (conformance.Foreign, error) {
						disk, snapshot, remove := c.ForeignDisk(tags)
						return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: remove}, nil
					},
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

// using has each disk attached once, as far as the cloud knows: it takes snapshots of no others, and the
// suite attaches not all of its disks. TestCopiesOfANewDisk is about those.
type using struct {
	*Provider
	cloud *sim.Cloud
}

func (u *using) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (*provider.Disk, error) {
	d, err := u.Provider.CreateDisk(ctx, key, spec)
	if err == nil {
		u.cloud.UseDisk(d.ID)
	}
	return d, err
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
