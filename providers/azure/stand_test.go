// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// quick suits the simulated cloud, whose steps take a millisecond.
var quick = tempo{
	ask:       poll.Pace{First: time.Millisecond, Max: 8 * time.Millisecond},
	retry:     policy.RetryOptions{MaxRetries: 4, RetryDelay: time.Millisecond, MaxRetryDelay: 4 * time.Millisecond},
	lag:       30 * time.Second,
	grace:     time.Second,
	undo:      time.Minute,
	abandoned: 50 * time.Millisecond,
	catalogue: time.Hour,
}

// stand is a provider on a cloud of its own.
type stand struct {
	*Provider
	t     testing.TB
	cloud *azuresim.Cloud
	cfg   Config
}

// newStand fails the test when the cloud was asked something that cannot be, or
// something that the documented role does not allow.
func newStand(t testing.TB, o azuresim.Options, changes ...func(*Config)) *stand {
	t.Helper()
	cloud := azuresim.New(t, o)
	s := &stand{t: t, cloud: cloud, cfg: workload(t, cloud)}
	for _, change := range changes {
		change(&s.cfg)
	}
	s.Provider = s.reopen()
	t.Cleanup(func() {
		for _, wrong := range cloud.Wrong() {
			t.Error(wrong)
		}
		for _, violation := range cloud.World.Violations() {
			t.Error(violation)
		}
		checkRole(t, cloud)
	})
	return s
}

// workload is the configuration of a cluster with workload identity.
func workload(t testing.TB, cloud *azuresim.Cloud) Config {
	c := config.Defaults[Config]()
	c.TenantID, c.ClientID = azuresim.TenantID, azuresim.ClientID
	c.TokenFile = tokenFile(t, cloud.FederatedToken(t, azuresim.Claims{}))
	c.AuthorityHost, c.Endpoint = cloud.Server.URL, cloud.Server.URL
	c.SubscriptionID, c.ResourceGroup, c.Region = azuresim.SubscriptionID, azuresim.ResourceGroup, azuresim.Region
	c.SubnetID, c.SecurityGroupID, c.ImageID = azuresim.SubnetID, azuresim.SecurityGroupID, azuresim.ImageID
	c.Sizes = instancetypes.Patterns{"*"}
	return c
}

func tokenFile(t testing.TB, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// testKey saves making a key for each provider.
const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJXQ5f2vYjbVqVtBvvwUvzzzgdrrFwI6w+8OHrUbe0N test"

func (p *Provider) useKey(t testing.TB, key string) {
	t.Helper()
	if _, err := p.key.Get(t.Context(), "", func() (string, time.Time, error) { return key, time.Time{}, nil }); err != nil {
		t.Fatal(err)
	}
}

// reopen is another process on the same cloud.
func (s *stand) reopen() *Provider {
	s.t.Helper()
	return s.reopenAs()
}

// reopenAs is another process with other settings.
func (s *stand) reopenAs(changes ...func(*Config)) *Provider {
	s.t.Helper()
	cfg := s.cfg
	for _, change := range changes {
		change(&cfg)
	}
	p, err := open(cfg, s.cloud.Transport(), quick)
	if err != nil {
		s.t.Fatal(err)
	}
	p.useKey(s.t, testKey)
	s.t.Cleanup(func() { p.Teardown() })
	return p
}

func spec(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)}
}

func (s *stand) create(key string, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	return s.CreateInstance(ctx, "web", key, cloudinit.Raw("#cloud-config\n"), spec)
}

func (s *stand) mustCreate(key string) *provider.Instance {
	s.t.Helper()
	i, err := s.create(key, spec(key))
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *stand) mustDelete(id string) {
	s.t.Helper()
	if err := s.DeleteInstance(s.t.Context(), id); err != nil {
		s.t.Fatal(err)
	}
}

// wantNothing waits until the cloud has nothing of ours.
func (s *stand) wantNothing() {
	s.t.Helper()
	s.eventually(func() bool { return len(s.cloud.World.Own()) == 0 }, func() any { return s.cloud.World.Own() })
}

func (s *stand) eventually(done func() bool, what func() any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	if err := quick.ask.Until(ctx, func() (bool, error) { return done(), nil }); err != nil {
		s.t.Fatalf("%v: %v", err, what())
	}
}
