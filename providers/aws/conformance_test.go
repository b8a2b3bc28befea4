// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// variants are the configurations that make a difference to what is made.
var variants = map[string]func(*Config){
	"direct":   func(*Config) {},
	"ordinary": func(c *Config) { c.DisableCVM = true; c.RootVolumeType = "gp3" },
	"template": func(c *Config) {
		c.UseTemplate, c.Image, c.Subnets, c.SecurityGroups, c.KeyName = true, "", nil, nil, ""
	},
	"public":  func(c *Config) { c.UsePublicIP = true },
	"elastic": func(c *Config) { c.UsePublicIP, c.ElasticIP = true, true },
	"zones":   func(c *Config) { c.Subnets = []string{sim.SubnetA, sim.SubnetB} },
	"spot":    func(c *Config) { c.Spot, c.SpotMaxPrice = true, "0.05" },
}

// whole are the variants that run the whole suite; the others run the checks in
// which they can differ.
var (
	whole = []string{"direct", "template", "elastic", "zones"}
	some  = regexp.MustCompile(`^(create|create-address|key-repeated|key-reopened|key-stopped|cancel-retryable|delete|delete-stopped|list-.*addresses|power.*|verify)$`)
)

func TestConformance(t *testing.T) {
	for name, change := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, check := range conformance.Checks() {
				if !slices.Contains(whole, name) && !some.MatchString(check.Name) {
					continue
				}
				t.Run(check.Name, func(t *testing.T) {
					check.Run(t, func(conformance.T) conformance.Subject { return subjectOf(t, name, change) })
				})
			}
		})
	}
}

func subjectOf(t *testing.T, name string, change func(*Config)) conformance.Subject {
	options := lively
	options.Page, options.Attachments = 5, 5
	options.ListLag = name == "direct" || name == "template"
	s := newStand(t, options)
	s.World.SetLag(2)
	noDisks := ""
	if name != "direct" {
		noDisks = "how an instance is made makes no difference to them"
	}
	return conformance.Subject{
		Provider: mustStart(t, s, change),
		Reopen:   func() provider.Provider { return mustStart(t, s, change) },
		NoAccess: map[string]func() provider.Provider{
			"an access key that was deleted": func() provider.Provider {
				return mustStart(t, s, func(c *Config) { change(c); c.AccessKeyID = "AKIADELETED000000000" })
			},
			"a secret that is not the key's": func() provider.Provider {
				return mustStart(t, s, func(c *Config) { change(c); c.SecretKey = "wrong" })
			},
		},
		Leaks:        s.leaks,
		Spec:         provider.InstanceTypeSpec{MultiNic: name == "zones"},
		ReadUserData: func(_ context.Context, id string) (string, error) { return s.UserData(id) },
		Limits:       cloudsim.Limits,
		NoDisks:      noDisks, Disk: provider.DiskSpec{Bytes: 1 << 30, Zone: sim.Region + "a"}, OtherZone: sim.Region + "b", DisksPerInstance: options.Attachments,
		WriteDisk: s.WriteDisk, ReadDisk: s.ReadDisk,
		Foreign: func(tags map[string]string) (conformance.Foreign, error) {
			disk, snapshot, remove := s.ForeignDisk(tags)
			return conformance.Foreign{DiskID: disk, SnapshotID: snapshot, Remove: remove}, nil
		},
	}
}

// mustStart opens a provider that the suite tears down.
func mustStart(t *testing.T, s *stand, change func(*Config)) *Provider {
	t.Helper()
	p, err := s.start(change)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mishaps are what may befall a call.
var mishaps = []cloudsim.Fault{
	cloudsim.LostReply("ec2:RunInstances"),
	cloudsim.LostReply("ec2:TerminateInstances"),
	cloudsim.LostReply("ec2:A*Address"),
	cloudsim.LostReply("ec2:ReleaseAddress"),
	cloudsim.Unreachable("ec2:*"),
	cloudsim.Slow("ec2:RunInstances", 30*time.Millisecond), cloudsim.GoesOn("ec2:RunInstances", 30*time.Millisecond),
	cloudsim.Slow("ec2:*", 5*time.Millisecond),
	cloudsim.Refused("ec2:RunInstances", 500, "InsufficientInstanceCapacity"),
	cloudsim.Refused("ec2:RunInstances", 400, "VcpuLimitExceeded"),
	cloudsim.Refused("ec2:AllocateAddress", 400, "AddressLimitExceeded"),
	cloudsim.Refused("ec2:*", 503, "RequestLimitExceeded"),
	cloudsim.Refused("ec2:*", 500, "InternalError").Repeated(6),
	cloudsim.Refused("ec2:Describe*", 503, "Unavailable").Repeated(6),
}

// TestSchedules draws the configuration too. It does without TLS, which costs
// a third of the time.
func TestSchedules(t *testing.T) {
	names := []string{"direct", "template", "public", "elastic", "zones", "spot"}
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		s := newStand(t, lively)
		s.plain(t)
		for _, key := range cloudsim.ScheduleKeys() {
			s.AddForeign(cloudsim.ForeignTags(key))
		}
		change := variants[names[random.IntN(len(names))]]
		return cloudsim.Stand{
			World: s.World, Faults: mishaps, MaxLag: 3,
			Spec: provider.InstanceTypeSpec{MultiNic: random.IntN(3) == 0},
			Open: func() (provider.Provider, error) { return s.start(change) },
		}
	})
}
