// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// mistake is a configuration that Azure cannot work with.
type mistake struct {
	options azuresim.Options
	change  func(*Config)
	prepare func(*azuresim.Cloud)
	class   error
	want    []string
}

var mistakes = map[string]mistake{
	"subscription": {change: func(c *Config) { c.SubscriptionID = "12345678-8888-7777-6666-555555555555" }, class: provider.ErrInvalidArgument, want: []string{"AZURE_SUBSCRIPTION_ID"}},
	"group":        {change: func(c *Config) { c.ResourceGroup = "nowhere" }, class: provider.ErrNotFound, want: []string{"AZURE_RESOURCE_GROUP"}},
	"subnet":       {change: func(c *Config) { c.SubnetID += "-absent" }, class: provider.ErrNotFound, want: []string{"AZURE_SUBNET_ID"}},
	"nsg":          {change: func(c *Config) { c.SecurityGroupID += "-absent" }, class: provider.ErrNotFound, want: []string{"AZURE_NSG_ID"}},
	"far nsg":      {change: func(c *Config) { c.SecurityGroupID = azuresim.FarSecurityGroupID }, class: provider.ErrInvalidArgument, want: []string{"AZURE_NSG_ID", "westeurope"}},
	"image":        {change: func(c *Config) { c.ImageID = azuresim.ManagedImageID + "-absent" }, class: provider.ErrNotFound, want: []string{"AZURE_IMAGE_ID"}},
	"version":      {change: func(c *Config) { c.ImageID += "9" }, class: provider.ErrNotFound, want: []string{"AZURE_IMAGE_ID"}},
	"community":    {change: func(c *Config) { c.ImageID = azuresim.CommunityImageID + "9" }, class: provider.ErrNotFound, want: []string{"AZURE_IMAGE_ID"}},
	"shared":       {change: func(c *Config) { c.ImageID = azuresim.SharedImageID + "9" }, class: provider.ErrNotFound, want: []string{"AZURE_IMAGE_ID"}},
	"region":       {change: func(c *Config) { c.Region = "moonwest" }, class: provider.ErrInvalidArgument, want: []string{"AZURE_REGION", "moonwest"}},
	"size":         {change: func(c *Config) { c.Size = "Standard_X1" }, class: provider.ErrInvalidArgument, want: []string{"AZURE_INSTANCE_SIZE", "Standard_X1"}},
	"restricted":   {change: func(c *Config) { c.Size = "Standard_EC4as_v5" }, class: provider.ErrInvalidArgument, want: []string{"AZURE_INSTANCE_SIZE", "NotAvailableForSubscription"}},
	"ordinary":     {change: func(c *Config) { c.Size = "Standard_D2s_v5" }, class: provider.ErrInvalidArgument, want: []string{"DISABLECVM"}},
	"confidential": {change: func(c *Config) { c.DisableCVM = true }, class: provider.ErrInvalidArgument, want: []string{"DISABLECVM"}},
	"trusted": {change: func(c *Config) { c.DisableCVM, c.EnableSecureBoot, c.Size = true, true, "Standard_D2ps_v5" },
		class: provider.ErrInvalidArgument, want: []string{"ENABLE_SECURE_BOOT"}},
	"no spot":    {change: func(c *Config) { c.DisableCVM, c.Spot, c.Size = true, true, "Standard_B1s" }, class: provider.ErrInvalidArgument, want: []string{"AZURE_SPOT"}},
	"zone":       {change: func(c *Config) { c.Size, c.Zones = "Standard_DC8as_v5", []string{"2", "3"} }, class: provider.ErrInvalidArgument, want: []string{"AZURE_ZONE", "zone 3"}},
	"quota":      {options: azuresim.Options{Cores: 1}, class: provider.ErrQuota, want: []string{"AZURE_INSTANCE_SIZE", "Regional vCPUs"}},
	"spot quota": {change: func(c *Config) { c.Spot, c.Size = true, "Standard_DC4as_v5" }, class: provider.ErrQuota, want: []string{"Spot"}},
	"all at once": {change: func(c *Config) { c.SubnetID += "x"; c.ImageID += "9"; c.Size = "Standard_X1" }, class: provider.ErrNotFound,
		want: []string{"AZURE_SUBNET_ID", "AZURE_IMAGE_ID", "AZURE_INSTANCE_SIZE"}},
	"join":       {prepare: func(c *azuresim.Cloud) { c.Deny(joinSubnet) }, class: provider.ErrPermissionDenied, want: []string{"AZURE_SUBNET_ID", joinSubnet}},
	"group rule": {prepare: func(c *azuresim.Cloud) { c.Deny(joinGroup) }, class: provider.ErrPermissionDenied, want: []string{"AZURE_NSG_ID", joinGroup}},

	"wrong secret":   {change: func(c *Config) { c.ClientSecret = "wrong-secret-value" }, class: provider.ErrUnauthenticated, want: []string{"AADSTS7000215", "AZURE_CLIENT_SECRET"}},
	"expired secret": {options: azuresim.Options{SecretExpired: true}, change: func(c *Config) { c.ClientSecret = azuresim.ClientSecret }, class: provider.ErrUnauthenticated, want: []string{"AADSTS7000222"}},
	"client":         {change: func(c *Config) { c.ClientID = "00000000-bbbb-cccc-dddd-eeeeeeeeeeee" }, class: provider.ErrUnauthenticated, want: []string{"AADSTS700016", "AZURE_CLIENT_ID"}},
	"tenant":         {change: func(c *Config) { c.TenantID = "00000000-2222-3333-4444-555555555555" }, want: []string{"AADSTS90002"}},
	"busy authority": {prepare: func(c *azuresim.Cloud) {
		c.World.Script(cloudsim.Refused("token", 503, "temporarily_unavailable").Repeated(-1))
	}, class: provider.ErrUnavailable},
}

func TestVerify(t *testing.T) {
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := []func(*Config){}
			if m.change != nil {
				changes = append(changes, m.change)
			}
			s := newStand(t, m.options, changes...)
			if m.prepare != nil {
				m.prepare(s.cloud)
			}
			m.check(t, s.ConfigVerifier(), s.cfg)
		})
	}
}

func (m mistake) check(t *testing.T, err error, cfg Config) {
	t.Helper()
	if err == nil || m.class != nil && !errors.Is(err, m.class) {
		t.Fatalf("%v", err)
	}
	for _, text := range m.want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not mention %s: %v", text, err)
		}
	}
	if secret := cfg.ClientSecret.Reveal(); secret != "" && strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "----------") {
		t.Errorf("it tells too much: %v", err)
	}
}

// TestEveryPermission takes one after the other: what the verifier says names
// it, and what the calls say too.
func TestEveryPermission(t *testing.T) {
	for _, action := range groupActions {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, azuresim.Options{}, func(c *Config) { c.UsePublicIP = true })
			s.cloud.Deny(action)
			if err := s.ConfigVerifier(); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
				t.Errorf("verify: %v", err)
			}
			i, err := s.create("key-1", spec("key-1"))
			if err != nil && (!errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action)) {
				t.Errorf("create: %v", err)
			}
			if strings.HasSuffix(action, "virtualMachines/delete") && i != nil {
				if err := s.DeleteInstance(t.Context(), i.ID); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), action) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
}

// TestFederatedTokens are those that the authority refuses.
func TestFederatedTokens(t *testing.T) {
	for name, claims := range map[string]azuresim.Claims{
		"issuer": {Issuer: "https://another.example/"}, "subject": {Subject: "system:serviceaccount:default:default"}, "audience": {Audience: "sts.example"},
		"expired": {Issued: -2 * time.Hour, Expires: -time.Hour}, "clock": {Issued: 10 * time.Minute}, "forged": {Forged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, azuresim.Options{})
			if err := os.WriteFile(s.cfg.TokenFile, []byte(s.cloud.FederatedToken(t, claims)), 0o600); err != nil {
				t.Fatal(err)
			}
			i, err := s.create("key-1", spec("key-1"))
			if !errors.Is(err, provider.ErrUnauthenticated) || i != nil || !strings.Contains(err.Error(), "AADSTS") {
				t.Errorf("%+v, %v", i, err)
			}
		})
	}
}

// TestTokensAreRenewed: each token lives less than the test.
func TestTokensAreRenewed(t *testing.T) {
	s := newStand(t, azuresim.Options{TokenLife: time.Second})
	for range 3 {
		s.mustDelete(s.mustCreate("key-1").ID)
		s.wantNothing()
	}
	if n := s.cloud.World.Calls()["token"]; n < 2 {
		t.Errorf("%d tokens", n)
	}
	if err := os.Remove(s.cfg.TokenFile); err != nil {
		t.Fatal(err)
	}
	if _, err := s.withoutToken().create("key-1", spec("key-1")); !errors.Is(err, provider.ErrUnauthenticated) || !strings.Contains(err.Error(), "AZURE_FEDERATED_TOKEN_FILE") {
		t.Errorf("%v", err)
	}
}

// withoutToken is a provider that has no token yet, on a configuration that was
// checked before.
func (s *stand) withoutToken() *stand {
	s.t.Helper()
	cloud, err := connect(s.cfg, s.cloud.Transport(), quick)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &Provider{cfg: s.cfg, cloud: cloud, transport: s.transport, tempo: quick}
	p.useKey(s.t, testKey)
	return &stand{Provider: p, t: s.t, cloud: s.cloud, cfg: s.cfg}
}

func TestClientSecret(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.ClientSecret, c.TokenFile = azuresim.ClientSecret, "" })
	s.mustDelete(s.mustCreate("key-1").ID)
}

func TestExpiredAccessToken(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.Refused(compute+"virtualMachines/write", 401, "ExpiredAuthenticationToken").Repeated(-1))
	if i, err := s.create("key-1", spec("key-1")); !errors.Is(err, provider.ErrUnauthenticated) || i != nil {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestUnreachable(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.Server.Close()
	if i, err := s.create("key-1", spec("key-1")); !errors.Is(err, provider.ErrUnavailable) || i != nil {
		t.Errorf("%+v, %v", i, err)
	}
	if err := s.ConfigVerifier(); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestUntrustedServer: the certificate is of an authority that nobody trusts.
func TestUntrustedServer(t *testing.T) {
	cloud := azuresim.New(t, azuresim.Options{})
	transport := &http.Transport{DialContext: cloudsim.DialLoopback}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := open(workload(t, cloud), transport, quick)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ConfigVerifier(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}

func TestInstanceTypes(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) {
		c.DisableCVM, c.Size, c.Prices = true, "Standard_D2s_v5", prices{"Standard_D2s_v5": 0.1}
	})
	types, err := s.InstanceTypes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]provider.InstanceType{}
	for _, row := range types {
		rows[row.Name] = row
	}
	if gpu := rows["Standard_NC24ads_A100_v4"]; gpu.GPUs != 1 || gpu.GPU != "nvidia-a100" || gpu.VCPUs != 24 || gpu.Memory != 220<<10 {
		t.Errorf("%+v", gpu)
	}
	if arm := rows["Standard_D2ps_v5"]; arm.Arch != "arm64" || len(arm.Zones) != 1 {
		t.Errorf("%+v", arm)
	}
	if _, there := rows["Standard_DC2as_v5"]; there || rows["Standard_D2s_v5"].Price != 0.1 {
		t.Errorf("%v", types)
	}
	sp := spec("key-1")
	sp.GPU = "T4"
	if i, err := s.create("key-1", sp); err != nil || i.Type != "Standard_NC4as_T4_v3" {
		t.Errorf("%+v, %v", i, err)
	}
	if n := s.cloud.World.Calls()[compute+"skus/read"]; n > 4 {
		t.Errorf("the list of sizes was asked for %d times", n)
	}
}
