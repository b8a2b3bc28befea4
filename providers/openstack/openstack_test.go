// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// simConfig is a configuration for a cloud; each change is made to it.
func simConfig(c *sim.Cloud, change ...func(*Config)) Config {
	cfg := config.Defaults[Config]()
	cfg.AuthURL, cfg.CAFile, cfg.Region = c.URL, c.CAFile, sim.Region
	cfg.User, cfg.Password, cfg.Project = sim.User, config.Secret(sim.Password), sim.Project
	cfg.Image, cfg.Flavor, cfg.Flavors, cfg.Network, cfg.Groups = sim.Image, "m1.small", instancetypes.Patterns{"m1.*"}, sim.Network, []string{sim.Group}
	for _, do := range change {
		do(&cfg)
	}
	return cfg
}

// everything asks for all that a server can have here.
func everything(c *Config) {
	c.RootVolume, c.VolumeType = 20, sim.VolumeType
	c.FloatingNetwork, c.Zones, c.Subnet, c.KeyName = sim.ExternalNetwork, []string{sim.ZoneA, sim.ZoneB}, sim.Subnet, sim.KeyName
}

// open returns a provider that waits for little, as the cloud takes little time.
func open(cfg Config) (*Provider, error) {
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	p.pace, p.makerWait, p.lateness = poll.Pace{First: time.Millisecond, Max: 5 * time.Millisecond}, 20*time.Millisecond, 20*time.Millisecond
	return p, nil
}

func mustOpen(t testing.TB, cfg Config) *Provider {
	t.Helper()
	p, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	return p
}

func create(ctx context.Context, p provider.Provider, key string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, "pod", key, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)})
}

func wantNothing(t *testing.T, c *sim.Cloud) {
	t.Helper()
	if left, _ := c.Leaks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if wrong := c.World.Violations(); len(wrong) > 0 {
		t.Errorf("books: %q", wrong)
	}
}

func TestConformance(t *testing.T) {
	c := sim.Start(t)
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider {
			p := mustOpen(t, simConfig(c, everything))
			p.makerWait = 20 * time.Second // a maker may be slow on a busy machine
			return p
		}
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Leaks: c.Leaks, Limits: cloudsim.Limits, NoAccess: noAccess(t, c),
			ReadUserData: func(_ context.Context, id string) (string, error) { return c.UserData(id) },
			Disk:         provider.DiskSpec{Zone: sim.ZoneA}, OtherZone: sim.ZoneB,
			Foreign: func(tags map[string]string) (conformance.Foreign, error) {
				id, remove := c.ForeignVolume(tags)
				return conformance.Foreign{DiskID: id, Remove: remove}, nil
			},
		}
	})
	wantNothing(t, c)
}

// noAccess are ways in which the cloud lets nobody in. Keystone answers a
// deleted application credential with 404.
func noAccess(t testing.TB, c *sim.Cloud) map[string]func() provider.Provider {
	with := func(change func(*Config)) func() provider.Provider {
		return func() provider.Provider { return mustOpen(t, simConfig(c, everything, change)) }
	}
	return map[string]func() provider.Provider{
		"a password that was changed": with(func(c *Config) { c.Password = "changed" }),
		"an application credential that was deleted": with(func(c *Config) {
			c.User, c.Password, c.Project = "", "", ""
			c.AppCredID, c.AppCredSecret = "00000000000000000000000000000000", "secret"
		}),
		"another project": with(func(c *Config) { c.Project = "gone" }),
	}
}

// faults are what happens to calls of an OpenStack.
var faults = []cloudsim.Fault{
	cloudsim.LostReply("os_compute_api:servers:create"), cloudsim.LostReply("create_port"), cloudsim.LostReply("create_floatingip"),
	cloudsim.LostReply("os_compute_api:servers:delete"), cloudsim.LostReply("delete_port"), cloudsim.LostReply("delete_floatingip"),
	cloudsim.GoesOn("os_compute_api:servers:create", 10*time.Millisecond), cloudsim.GoesOn("create_port", 10*time.Millisecond), cloudsim.GoesOn("create_floatingip", 10*time.Millisecond),
	cloudsim.Unreachable("*"), cloudsim.Slow("*", 2*time.Millisecond), cloudsim.Slow("os_compute_api:servers:create", 10*time.Millisecond), cloudsim.Slow("create_port", 10*time.Millisecond),
	cloudsim.Refused("*", 503, "serviceUnavailable"), cloudsim.Refused("*", 500, "computeFault"), cloudsim.Refused("*", 401, "Unauthorized"),
	cloudsim.Refused("os_compute_api:servers:create", 0, "late:No valid host was found. There are not enough hosts available."),
	cloudsim.Refused("os_compute_api:servers:create", 403, "forbidden"), cloudsim.Refused("create_port", 409, "OverQuota"), cloudsim.Refused("create_floatingip", 409, "OverQuota"),
	cloudsim.Refused("os_compute_api:servers:delete", 409, "conflictingRequest"),
}

func TestSchedules(t *testing.T) {
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		c := sim.Start(t)
		c.AddForeign(cloudsim.ForeignTags(cloudsim.ScheduleKeys()[0]))
		var change []func(*Config)
		if random.IntN(2) == 0 {
			change = append(change, everything)
		}
		return cloudsim.Stand{
			World: c.World, Faults: faults, Untagged: []string{cloudsim.KindDisk}, // Nova makes the volume
			Open: func() (provider.Provider, error) { return open(simConfig(c, change...)) },
		}
	})
}

func TestCredentials(t *testing.T) {
	c := sim.Start(t)
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := "clouds:\n  pods:\n    auth:\n      auth_url: " + c.URL + "\n      username: " + sim.User + "\n      password: " + sim.Password +
		"\n      project_name: " + sim.Project + "\n      user_domain_name: Default\n      project_domain_name: Default\n      domain_name: Default\n    region_name: " + sim.Region + "\n    cacert: " + c.CAFile + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"password":   func(*Config) {},
		"project id": func(c *Config) { c.Project, c.ProjectID = "", sim.ProjectID },
		"application credential": func(c *Config) {
			c.User, c.Password, c.Project = "", "", ""
			c.AppCredID, c.AppCredSecret = sim.AppCredID, sim.AppCredSecret
		},
		"clouds.yaml": func(c *Config) {
			c.AuthURL, c.CAFile, c.User, c.Password, c.Project, c.Region = "", "", "", "", "", ""
			c.Cloud, c.CloudsFile = "pods", file
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustOpen(t, simConfig(c, change))
			if err := p.ConfigVerifier(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokenIsRenewed(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	c.ExpireTokens()
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestCapacityFallsBack to the next zone, then to the next flavor.
func TestCapacityFallsBack(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c, everything))
	full := cloudsim.Refused("os_compute_api:servers:create", 0, "late:No valid host was found.")
	c.World.Script(full.Repeated(3))
	spec := provider.InstanceTypeSpec{VCPUs: 2, Tags: cloudsim.OwnerTags("key")}
	i, err := p.CreateInstance(t.Context(), "pod", "key", nil, spec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.GetInstance(t.Context(), i.ID)
	if err != nil || got.Zone != sim.ZoneB {
		t.Errorf("%+v, %v: want the second zone", got, err)
	}
	c.World.Script(full.Repeated(-1))
	spec.VCPUs = 8
	if _, err := p.CreateInstance(t.Context(), "pod", "other", nil, spec); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("all full: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestServerLost: what is left of an instance whose server somebody has deleted
// is listed, and goes with its deletion; a creation makes it again.
func TestServerLost(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c, everything))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	c.LoseServer(i.ID)
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "key"})
	if err != nil || len(list) != 1 || list[0].ID != i.ID {
		t.Errorf("listed: %v, %v", list, err)
	}
	if _, err := create(t.Context(), p, "key"); err != nil {
		t.Error(err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

func TestDescribe(t *testing.T) {
	long := make([]byte, 200)
	for i := range long {
		long[i] = 'x'
	}
	tags := cloudsim.OwnerTags("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	tags[provider.TagPod], tags["mine"], tags["outrigger-odd"] = string(long), "a b", "a b=c"
	description, rest := describe(tags)
	if len(description) > 255 || len(rest) != 3 {
		t.Errorf("%d characters, %d tags: %q", len(description), len(rest), rest)
	}
	got := tagsOf(description, rest)
	for key, value := range tags {
		if got[key] != value {
			t.Errorf("%s is %q, want %q", key, got[key], value)
		}
	}
}
