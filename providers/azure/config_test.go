// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// TestSettings gives each setting a bad value: the error names flag and
// variable, and no secret.
func TestSettings(t *testing.T) {
	cloud := azuresim.New(t, azuresim.Options{})
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no subscription":    {func(c *Config) { c.SubscriptionID = "" }, "-subscriptionid (AZURE_SUBSCRIPTION_ID)"},
		"bad subscription":   {func(c *Config) { c.SubscriptionID = "mine" }, "-subscriptionid (AZURE_SUBSCRIPTION_ID)"},
		"no region":          {func(c *Config) { c.Region = "" }, "-region (AZURE_REGION)"},
		"bad region":         {func(c *Config) { c.Region = "East US" }, "-region (AZURE_REGION)"},
		"bad zone":           {func(c *Config) { c.Zones = []string{"1", "eastus-1"} }, "-zone (AZURE_ZONE)"},
		"no group":           {func(c *Config) { c.ResourceGroup = "" }, "-resourcegroup (AZURE_RESOURCE_GROUP)"},
		"bad group":          {func(c *Config) { c.ResourceGroup = "a/b" }, "-resourcegroup (AZURE_RESOURCE_GROUP)"},
		"no subnet":          {func(c *Config) { c.SubnetID = "" }, "-subnetid (AZURE_SUBNET_ID)"},
		"bad subnet":         {func(c *Config) { c.SubnetID = "pods" }, "-subnetid (AZURE_SUBNET_ID)"},
		"bad security group": {func(c *Config) { c.SecurityGroupID = "nsg" }, "-securitygroupid (AZURE_NSG_ID)"},
		"no image":           {func(c *Config) { c.ImageID = "" }, "-imageid (AZURE_IMAGE_ID)"},
		"bad image":          {func(c *Config) { c.ImageID = "podvm" }, "-imageid (AZURE_IMAGE_ID)"},
		"bad size":           {func(c *Config) { c.Size = "Standard D2" }, "-instance-size (AZURE_INSTANCE_SIZE)"},
		"bad user":           {func(c *Config) { c.SSHUser = "Root User" }, "-ssh-username (SSH_USERNAME)"},
		"reserved user":      {func(c *Config) { c.SSHUser = "admin" }, "-ssh-username (SSH_USERNAME)"},
		"volume size":        {func(c *Config) { c.RootVolumeSize = -1 }, "-root-volume-size (ROOT_VOLUME_SIZE)"},
		"large volume":       {func(c *Config) { c.RootVolumeSize = 5000 }, "-root-volume-size (ROOT_VOLUME_SIZE)"},
		"disk type":          {func(c *Config) { c.DiskType = "Fast" }, "-azure-disk-type (AZURE_DISK_TYPE)"},
		"encryption":         {func(c *Config) { c.DiskEncryption = "All" }, "-azure-disk-encryption (AZURE_DISK_ENCRYPTION)"},
		"unsafe boot":        {func(c *Config) { c.DiskEncryption = "DiskWithVMGuestState" }, "-enable-secure-boot (ENABLE_SECURE_BOOT)"},
		"no client":          {func(c *Config) { c.ClientID = "" }, "-clientid (AZURE_CLIENT_ID)"},
		"bad client":         {func(c *Config) { c.ClientID = "app" }, "-clientid (AZURE_CLIENT_ID)"},
		"no tenant":          {func(c *Config) { c.TenantID = "" }, "-tenantid (AZURE_TENANT_ID)"},
		"bad tenant":         {func(c *Config) { c.TenantID = "a b" }, "-tenantid (AZURE_TENANT_ID)"},
		"no credentials":     {func(c *Config) { c.TokenFile = "" }, "-secret (AZURE_CLIENT_SECRET)"},
		"no token":           {func(c *Config) { c.TokenFile = "/absent" }, "-azure-federated-token-file (AZURE_FEDERATED_TOKEN_FILE)"},
		"no secret":          {func(c *Config) { c.Credential = credentialSecret }, "-secret (AZURE_CLIENT_SECRET)"},
		"credential":         {func(c *Config) { c.Credential = "chain" }, "-azure-credential (AZURE_CREDENTIAL)"},
		"environment":        {func(c *Config) { c.Environment = "AzureMoonCloud" }, "-azure-environment (AZURE_ENVIRONMENT)"},
		"authority":          {func(c *Config) { c.AuthorityHost = "http://login.example" }, "-azure-authority-host (AZURE_AUTHORITY_HOST)"},
		"endpoint":           {func(c *Config) { c.Endpoint = "management.example" }, "-azure-endpoint (AZURE_RESOURCE_MANAGER_ENDPOINT)"},
		"no authorities":     {func(c *Config) { c.CAFile = "/absent" }, "-azure-ca-file (AZURE_CA_FILE)"},
		"bad authorities":    {func(c *Config) { c.CAFile = file }, "-azure-ca-file (AZURE_CA_FILE)"},
		"tag name":           {func(c *Config) { c.Tags = map[string]string{"a/b": "c"} }, "a/b"},
		"tag value":          {func(c *Config) { c.Tags = map[string]string{"a": strings.Repeat("x", 257)} }, "257"},
		"tags of one name":   {func(c *Config) { c.Tags = map[string]string{"Team": "a", "team": "b"} }, "Team and team"},
		"many tags":          {func(c *Config) { c.Tags = manyTags(51) }, "51"},
	} {
		t.Run(name, func(t *testing.T) {
			c := workload(t, cloud)
			test.change(&c)
			_, err := New(c)
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func manyTags(n int) map[string]string {
	tags := map[string]string{}
	for i := range n {
		tags[fmt.Sprint("tag", i)] = "x"
	}
	return tags
}

// TestMalformed is what does not even parse.
func TestMalformed(t *testing.T) {
	cloud := azuresim.New(t, azuresim.Options{})
	for _, pair := range cloud.Env(t) {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	for env, value := range map[string]string{
		"DISABLECVM": "maybe", "ENABLE_SECURE_BOOT": "2", "USE_PUBLIC_IP": "y e s", "ROOT_VOLUME_SIZE": "big", "TAGS": "a", "AZURE_SPOT": "-",
		"AZURE_SPOT_MAX_PRICE": "cheap", "AZURE_PRICES": "Standard_D2s_v5", "AZURE_BOOT_DIAGNOSTICS": "perhaps", "AZURE_INSTANCE_SIZES": "[",
		"AZURE_ENVIRONMENT": "Azure",
	} {
		before := os.Getenv(env)
		t.Setenv(env, value)
		m := NewManager()
		m.ParseCmd(flag.NewFlagSet("test", flag.ContinueOnError))
		m.LoadEnv()
		if _, err := m.NewProvider(); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "("+env+")") {
			t.Errorf("%s=%s: %v", env, value, err)
		}
		os.Setenv(env, before)
	}
}

func TestSSHKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.SSHKeyPath = file })
	for text, want := range map[string]string{"": "-ssh-key-path", "no key": "-ssh-key-path", testKey + "\n": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.key.Forget("", func(string) bool { return true })
		key := fmt.Sprint("key-", len(text)) // one that is taken needs no SSH key
		_, err := s.create(key, spec(key))
		if want == "" && err != nil || want != "" && (!errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if key, err := loadKey(""); err != nil || !strings.HasPrefix(key, "ssh-rsa ") {
		t.Errorf("%s, %v", key, err)
	}
}

// TestSpecs is what a pod may ask for and cannot have.
func TestSpecs(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.Sizes = nil })
	for name, test := range map[string]struct {
		change func(*provider.InstanceTypeSpec)
		want   string
	}{
		"size that is not allowed": {func(s *provider.InstanceTypeSpec) { s.InstanceType = "Standard_DC4as_v5" }, "Standard_DC4as_v5"},
		"image of nowhere":         {func(s *provider.InstanceTypeSpec) { s.Image = azuresim.ManagedImageID + "-absent" }, "podvm-image-absent"},
		"tags of one name":         {func(s *provider.InstanceTypeSpec) { s.Tags["Outrigger-Key"] = "x" }, "case"},
		"long tag":                 {func(s *provider.InstanceTypeSpec) { s.Tags[provider.TagPod] = strings.Repeat("x", 257) }, provider.TagPod},
		"another key":              {func(s *provider.InstanceTypeSpec) { s.Tags[provider.TagKey] = "other" }, "other"},
	} {
		sp := spec("key-1")
		test.change(&sp)
		i, err := s.create("key-1", sp)
		if provider.Retryable(err) || err == nil || i != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
	if _, err := s.CreateInstance(t.Context(), "web", "key-1", cloudinit.Raw(strings.Repeat("x", 49150)), spec("key-1")); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "49150") {
		t.Errorf("large user-data: %v", err)
	}
	if _, err := s.CreateInstance(t.Context(), "web", "key-1", cloudinit.Raw(strings.Repeat("x", 49149)), spec("key-1")); err != nil {
		t.Errorf("user-data that fits: %v", err)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, pair := range [][2]string{{"a", "key"}, {"a", "KEY"}, {"", "akey"}, {"b", "key"}} {
		name := vmName(pair[0], pair[1])
		if !isVMName(name) || len(name) > 64 || seen[name] {
			t.Errorf("%v is named %s", pair, name)
		}
		seen[name] = true
	}
	p := &Provider{cfg: Config{SubscriptionID: azuresim.SubscriptionID, ResourceGroup: "group"}}
	id := p.id(p.ref(vmName("", "key")))
	for other, want := range map[string]bool{
		id: true, id + " ": false, id + "/": false, "x" + id: false, strings.Replace(id, "podvm-", "aks-", 1): false,
		strings.Replace(id, azuresim.SubscriptionID, "other", 1): false, strings.Replace(id, "group/", "another/", 1): true, "": false,
	} {
		if _, ok := p.parseID(other); ok != want {
			t.Errorf("%s: %v", other, ok)
		}
	}
}

func TestWildcards(t *testing.T) {
	for _, test := range []struct {
		pattern, action string
		want            bool
	}{
		{"*", "Microsoft.Compute/disks/read", true}, {"*/read", "Microsoft.Compute/disks/read", true}, {"*/read", "Microsoft.Compute/disks/write", false},
		{"microsoft.compute/*/Read", "Microsoft.Compute/disks/read", true}, {"Microsoft.Network/*", "Microsoft.Compute/disks/read", false},
		{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/read", true}, {"", "x", false},
	} {
		if got := anyMatch([]string{test.pattern}, test.action); got != test.want {
			t.Errorf("%s, %s: %v", test.pattern, test.action, got)
		}
	}
	p := permission{Actions: []string{"*"}, NotActions: []string{"Microsoft.Compute/*/delete"}}
	if p.allows("Microsoft.Compute/disks/delete") || !p.allows("Microsoft.Compute/disks/read") {
		t.Error("notActions are taken from actions")
	}
}
