// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

// TestBadSettings is about what no cloud is needed for.
func TestBadSettings(t *testing.T) {
	good := func() Config {
		c := config.Defaults[Config]()
		c.AuthURL, c.User, c.Password, c.Project = "https://keystone.example/v3", "u", "secret", "p"
		c.Image, c.Flavor, c.Network = "i", "f", "n"
		return c
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no URL":        {func(c *Config) { c.AuthURL = "" }, "-os-auth-url (OS_AUTH_URL)"},
		"URL":           {func(c *Config) { c.AuthURL = "keystone.example" }, "-os-auth-url (OS_AUTH_URL)"},
		"URL with user": {func(c *Config) { c.AuthURL = "https://u:p@keystone.example" }, "OS_PASSWORD"},
		"no user":       {func(c *Config) { c.User = "" }, "-os-username (OS_USERNAME)"},
		"no password":   {func(c *Config) { c.Password = "" }, "OS_PASSWORD"},
		"no project":    {func(c *Config) { c.Project = "" }, "-os-project-name (OS_PROJECT_NAME)"},
		"no secret":     {func(c *Config) { c.AppCredID = "a" }, "OS_APPLICATION_CREDENTIAL_SECRET"},
		"interface":     {func(c *Config) { c.Interface = "secret2" }, "-os-interface (OS_INTERFACE)"},
		"CA absent":     {func(c *Config) { c.CAFile = "/nonexistent" }, "-os-cacert (OS_CACERT)"},
		"CA empty":      {func(c *Config) { c.CAFile = "/dev/null" }, "-os-cacert (OS_CACERT)"},
		"no image":      {func(c *Config) { c.Image = "" }, "-imageid (OPENSTACK_IMAGE_ID)"},
		"no flavor":     {func(c *Config) { c.Flavor = "" }, "-instance-type (OPENSTACK_FLAVOR)"},
		"no network":    {func(c *Config) { c.Network = "" }, "-network-id (OPENSTACK_NETWORK_ID)"},
		"volume type":   {func(c *Config) { c.VolumeType = "ssd" }, "-root-volume-type (OPENSTACK_ROOT_VOLUME_TYPE)"},
		"volume":        {func(c *Config) { c.RootVolume = -1 }, "-root-volume-size (ROOT_VOLUME_SIZE)"},
		"arch":          {func(c *Config) { c.Arch = "vax" }, "-openstack-arch (OPENSTACK_ARCH)"},
		"tags":          {func(c *Config) { c.Tags = map[string]string{"k": strings.Repeat("x", 256)} }, "-tags (TAGS)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good()
			row.change(&c)
			_, err := New(c)
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want an invalid argument that names %q", err, row.want)
			}
			if err != nil && strings.Contains(err.Error(), `"secret"`) {
				t.Error("the password is in the error")
			}
		})
	}
}

// TestBadWorld: the verifier finds all of it; creations have its class and name
// the first.
func TestBadWorld(t *testing.T) {
	script := func(faults ...cloudsim.Fault) func(*sim.Cloud) {
		return func(c *sim.Cloud) { c.World.Script(faults...) }
	}
	for name, row := range map[string]struct {
		change func(*Config)
		world  func(*sim.Cloud)
		class  error
		want   []string
	}{
		"password":               {func(c *Config) { c.Password = "wrong" }, nil, provider.ErrUnauthenticated, []string{"OS_PASSWORD", sim.User}},
		"application credential": {func(c *Config) { c.AppCredID, c.AppCredSecret = sim.AppCredID, "wrong" }, nil, provider.ErrUnauthenticated, []string{"OS_APPLICATION_CREDENTIAL_SECRET"}},
		"region":                 {func(c *Config) { c.Region = "Nowhere" }, nil, provider.ErrInvalidArgument, []string{"-os-region-name", "Nowhere"}},
		"clouds.yaml":            {func(c *Config) { c.AuthURL, c.Cloud, c.CloudsFile = "", "c0", "/nonexistent" }, nil, provider.ErrInvalidArgument, []string{"-os-cloud (OS_CLOUD)"}},
		"CA":                     {func(c *Config) { c.CAFile = "" }, nil, provider.ErrUnauthenticated, []string{"certificate"}},
		"closed port":            {func(c *Config) { c.AuthURL = "https://127.0.0.1:1/v3" }, nil, provider.ErrUnavailable, []string{"127.0.0.1:1"}},
		"down":                   {nil, script(cloudsim.Refused("*", 503, "serviceUnavailable").Repeated(-1)), provider.ErrUnavailable, []string{"503"}},
		"flavor":                 {func(c *Config) { c.Flavor = "f0" }, nil, provider.ErrInvalidArgument, []string{"-instance-type (OPENSTACK_FLAVOR)", "f0"}},
		"image":                  {func(c *Config) { c.Image = "i0" }, nil, nil, []string{"i0"}},
		"network":                {func(c *Config) { c.Network = "n0" }, nil, provider.ErrNotFound, []string{"-network-id (OPENSTACK_NETWORK_ID)", "n0"}},
		"group":                  {func(c *Config) { c.Groups = []string{"g0"} }, nil, provider.ErrNotFound, []string{"-security-group-ids (OPENSTACK_SECURITY_GROUP_IDS)", "g0"}},
		"subnet":                 {func(c *Config) { c.Subnet = sim.OtherSubnet }, nil, provider.ErrInvalidArgument, []string{"-subnet-id (OPENSTACK_SUBNET_ID)"}},
		"zone":                   {func(c *Config) { c.Zones = []string{"z0"} }, nil, nil, []string{"z0"}},
		"key":                    {func(c *Config) { c.KeyName = "k0" }, nil, nil, []string{"ey"}},
		"floating network":       {func(c *Config) { c.FloatingNetwork = "e0" }, nil, nil, []string{"-floating-network-id (OPENSTACK_FLOATING_NETWORK_ID)", "e0"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sim.Start(t)
			var changes []func(*Config)
			if row.change != nil {
				changes = append(changes, row.change)
			}
			if row.world != nil {
				row.world(c)
			}
			p := mustOpen(t, simConfig(c, changes...))
			_, createErr := create(t.Context(), p, "key")
			for _, err := range []error{p.ConfigVerifier(), createErr} {
				if err == nil || row.class != nil && !errors.Is(err, row.class) || row.class == nil && !errors.Is(err, provider.ErrInvalidArgument) && !errors.Is(err, provider.ErrNotFound) {
					t.Fatalf("%v, want %v", err, row.class)
				}
				for _, want := range row.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v does not name %q", err, want)
					}
				}
				if strings.Contains(err.Error(), sim.Password) || strings.Contains(err.Error(), sim.AppCredSecret) {
					t.Error("a secret is in the error")
				}
			}
			wantNothing(t, c)
		})
	}
}

// TestVerifierReportsAll at once.
func TestVerifierReportsAll(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c, func(c *Config) {
		c.Image, c.Flavor, c.Network, c.Groups, c.Zones, c.KeyName, c.FloatingNetwork = sim.QueuedImage, "f0", "n0", []string{"g0"}, []string{"z0"}, "k0", "e0"
	}))
	err := p.ConfigVerifier()
	for _, want := range []string{"queued", "f0", "n0", "g0", "z0", "k0", "e0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// lives are what the provider does with an instance.
func lives(p *Provider) error {
	ctx := context.Background()
	i, err := create(ctx, p, "key")
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		p.ConfigVerifier,
		func() error { return p.PowerOff(ctx, i.ID) },
		func() error { return p.PowerOn(ctx, i.ID) },
		func() error { _, err := p.Console(ctx, i.ID, 100); return err },
		func() error { _, err := p.ListInstances(ctx, cloudsim.OwnerTags("key")); return err },
		func() error { return p.DeleteInstance(ctx, i.ID) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestPolicy keeps the policies in the documentation to those that a whole
// life asks for, and takes each away in turn: the error names it.
func TestPolicy(t *testing.T) {
	c := sim.Start(t)
	all := func(c *Config) { everything(c); c.Tags = map[string]string{"mine": "a b"} }
	if err := lives(mustOpen(t, simConfig(c, all))); err != nil {
		t.Fatal(err)
	}
	seen := []string{}
	var text strings.Builder
	for action := range c.World.Calls() {
		seen = append(seen, action)
	}
	slices.Sort(seen)
	for _, action := range seen {
		text.WriteString("- `" + action + "`\n")
	}
	cloudsim.CheckDoc(t, filepath.Join("..", "..", "docs", "providers", "openstack.md"), "policies", text.String())
	for _, action := range seen {
		if action == "identity:create_token" {
			continue
		}
		c.Deny(action)
		err := lives(mustOpen(t, simConfig(c, all)))
		if !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
			t.Errorf("without %s: %v", action, err)
		}
		c.Deny()
		if err := mustOpen(t, simConfig(c, all)).DeleteInstance(t.Context(), instanceID("key")); err != nil {
			t.Fatal(err)
		}
	}
	wantNothing(t, c)
}

func TestQuotaAndThrottling(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	quota := cloudsim.Refused("os_compute_api:servers:create", 403, "forbidden")
	quota.Message = "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"
	for _, fault := range []cloudsim.Fault{quota, cloudsim.Refused("create_port", 409, "OverQuota")} {
		c.World.Script(fault)
		if _, err := create(t.Context(), p, "key"); !errors.Is(err, provider.ErrQuota) {
			t.Errorf("%s: %v", fault.Action, err)
		}
	}
	c.World.Script(cloudsim.Refused("create_port", 429, "Throttled").Repeated(2))
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatalf("throttled twice: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

func TestWrongRequests(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	random := make([]byte, 48<<10)
	rand.Read(random)
	large := cloudinit.Raw(hex.EncodeToString(random))
	for name, try := range map[string]func() error{
		"user-data": func() error {
			_, err := p.CreateInstance(t.Context(), "pod", "key", large, provider.InstanceTypeSpec{})
			return err
		},
		"tag": func() error {
			_, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{Tags: map[string]string{"k": strings.Repeat("x", 256)}})
			return err
		},
		"second interface": func() error {
			_, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{MultiNic: true})
			return err
		},
		"volumes": func() error {
			_, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{Volumes: []provider.CloudVolume{{DiskID: "d"}}})
			return err
		},
	} {
		if err := try(); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := c.World.Calls(); len(calls) > 0 {
		t.Errorf("the cloud was called: %v", calls)
	}
	p = mustOpen(t, simConfig(c, func(c *Config) { c.Flavors = instancetypes.Patterns{"m1.small"} }))
	if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{InstanceType: "m1.large"}); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("a flavor that is not allowed: %v", err)
	}
}

// TestSilentServer: every method ends with its context though nobody answers.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c, func(c *Config) { c.AuthURL = "https://" + listener.Addr().String() + "/v3" }))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := create(ctx, p, "key"); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(ctx, instanceID("key")); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("delete: %v", err)
	}
}

// TestCalls is the table of calls in the documentation.
func TestCalls(t *testing.T) {
	for name, row := range map[string]struct {
		change          func(*Config)
		create, destroy int // at most; reads while something is under way not counted
	}{
		"plain":      {func(*Config) {}, 5, 6},
		"everything": {everything, 7, 8},
	} {
		c := sim.Start(t)
		p := mustOpen(t, simConfig(c, row.change))
		if err := lives(p); err != nil {
			t.Fatal(err)
		}
		c.World.ResetCalls()
		i, err := create(t.Context(), p, "other")
		if err != nil {
			t.Fatal(err)
		}
		created := total(c)
		c.World.ResetCalls()
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
		if deleted := total(c); created != row.create || deleted != row.destroy {
			t.Errorf("%s: %d calls per create and %d per delete, want %d and %d", name, created, deleted, row.create, row.destroy)
		}
	}
}

// total counts what goes on while a server changes as one call.
func total(c *sim.Cloud) (n int) {
	for action, calls := range c.World.Calls() {
		if action == "os_compute_api:servers:show" {
			calls = 1
		}
		n += calls
	}
	return n
}
