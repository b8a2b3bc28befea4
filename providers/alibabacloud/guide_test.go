// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"bufio"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

const overlay = "../../deploy/overlays/alibabacloud"

// documented returns the variables that the overlay's files have, also those
// that stand there as comments, with the values they have there.
func documented(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"kustomization.yaml", "alibabacloud-cred.env"} {
		file, err := os.Open(filepath.Join(overlay, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			line := strings.TrimLeft(lines.Text(), " #-")
			if name, value, ok := strings.Cut(line, "="); ok && name == strings.ToUpper(name) && !strings.Contains(name, " ") {
				found[name] = value
			}
		}
	}
	return found
}

// TestGuide walks the guide: the overlay's variables with a role, a token file,
// the exchange of the token over TLS, signed calls, an instance with the
// documented parameters and a public address, and its deletion.
func TestGuide(t *testing.T) {
	noLeaks(t)
	c := newCloud(t, sim.Options{})
	token := filepath.Join(t.TempDir(), "token")
	// As an editor leaves it: with an end of line.
	if err := os.WriteFile(token, []byte(sim.Token(sim.ServiceAccount())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := documented(t)
	for name, value := range map[string]string{
		"VSWITCH_ID": sim.VSwitch, "SECURITY_GROUP_IDS": sim.Group, "IMAGEID": sim.Image, "REGION": sim.Region,
		"ALIBABA_CLOUD_ROLE_ARN": sim.Role, "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": sim.OIDCProvider, "ALIBABA_CLOUD_OIDC_TOKEN_FILE": token,
		"SYSTEM_DISK_SIZE": "60", "USE_PUBLIC_IP": "true", "KEYNAME": sim.KeyPair, "TAGS": "team=blue,cost=12", "DISABLECVM": "false",
		"PODVM_INSTANCE_TYPE": "ecs.g8i.xlarge",
	} {
		if _, ok := env[name]; !ok {
			t.Errorf("the overlay does not mention %s", name)
		}
		env[name] = value
	}
	delete(env, "ALIBABACLOUD_ACCESS_KEY_ID")
	delete(env, "ALIBABACLOUD_ACCESS_KEY_SECRET")
	env["ALIBABACLOUD_PUBLIC_IP"] = publicEIP
	for name, value := range env {
		t.Setenv(name, value)
	}
	for name, value := range map[string]string{"ECS_ENDPOINT": c.Endpoint, "VPC_ENDPOINT": c.Endpoint, "STS_ENDPOINT": c.Endpoint, "CA_FILE": c.CAFile} {
		t.Setenv("ALIBABACLOUD_"+name, value)
	}
	manager := NewManager()
	manager.LoadEnv()
	cfg, err := manager.Config()
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, cfg)
	if err := p.ConfigVerifier(); err != nil {
		t.Errorf("verify: %v", err)
	}
	i := mustCreate(t, p, "guide-0123456789", provider.InstanceTypeSpec{})
	if len(i.IPs) != 1 || !strings.HasPrefix(i.IPs[0].String(), "203.") || !strings.HasPrefix(i.Name, "podvm-pod-of-") {
		t.Errorf("instance %+v", i)
	}
	wantRequest(t, c.Requests()[0])
	if n := c.Calls()[assumeRoleAction]; n != 1 {
		t.Errorf("the role was taken %d times", n)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// wantRequest looks at the parameters that do not differ between runs.
func wantRequest(t *testing.T, got url.Values) {
	t.Helper()
	want := map[string]string{
		"RegionId": "cn-beijing", "ImageId": sim.Image, "InstanceType": "ecs.g8i.xlarge", "VSwitchId": sim.VSwitch, "SecurityGroupIds.1": sim.Group,
		"Amount": "1", "MinAmount": "1", "InstanceChargeType": "PostPaid", "SpotStrategy": "NoSpot", "KeyPairName": sim.KeyPair,
		"SystemDisk.Size": "60", "SystemDisk.Category": "cloud_essd", "SecurityOptions.ConfidentialComputingMode": "TDX",
		"HttpTokens": "required", "HttpEndpoint": "enabled", "InstanceName": "podvm-pod-of-guide-0123456789-guide-01",
		"UserData": "I2Nsb3VkLWNvbmZpZwo=",
	}
	rest := map[string]string{}
	for name, values := range got {
		if !strings.HasPrefix(name, "Tag.") && name != "ClientToken" {
			rest[name] = values[0]
		}
	}
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Errorf("RunInstances: -want +got\n%s", diff)
	}
	if n := len(got.Get("ClientToken")); n != 64 {
		t.Errorf("the client token has %d characters", n)
	}
	tags := map[string]string{}
	for n := 1; got.Has("Tag." + strconv.Itoa(n) + ".Key"); n++ {
		tags[got.Get("Tag."+strconv.Itoa(n)+".Key")] = got.Get("Tag." + strconv.Itoa(n) + ".Value")
	}
	owner := cloudsim.OwnerTags("guide-0123456789")
	owner["team"], owner["cost"] = "blue", "12"
	if !provider.HasTags(tags, owner) {
		t.Errorf("tags %v lack some of %v", tags, owner)
	}
}

// TestRoleIsRenewed: keys that have nearly ended are not used, those that the
// cloud has revoked are replaced, and the token file is read again.
func TestRoleIsRenewed(t *testing.T) {
	c := newCloud(t, sim.Options{Session: renewBefore / 2})
	cfg := roleSettings(t, c)
	p := newProvider(t, cfg)
	list := func() {
		t.Helper()
		if _, err := p.ListInstances(t.Context(), map[string]string{"a": "b"}); err != nil {
			t.Error(err)
		}
	}
	list()
	if n := c.Calls()[assumeRoleAction]; n != 2 { // one for each call
		t.Errorf("the role was taken %d times", n)
	}
	if err := os.Remove(cfg.OIDCTokenFile); err != nil {
		t.Fatal(err)
	}
	list() // the keys are good for a while
	c.Revoke()
	if _, err := p.ListInstances(t.Context(), map[string]string{"a": "b"}); err == nil {
		t.Error("no error without a token")
	}
	writeToken(t, cfg.OIDCTokenFile, sim.ServiceAccount())
	list()
}

func roleSettings(t *testing.T, c *sim.Cloud) Config {
	cfg := settings(c)
	cfg.AccessKeyID, cfg.AccessKeySecret = "", ""
	cfg.RoleARN, cfg.OIDCProviderARN, cfg.OIDCTokenFile = sim.Role, sim.OIDCProvider, filepath.Join(t.TempDir(), "token")
	writeToken(t, cfg.OIDCTokenFile, sim.ServiceAccount())
	return cfg
}

func writeToken(t *testing.T, file string, claims sim.Claims) {
	t.Helper()
	if err := os.WriteFile(file, []byte(sim.Token(claims)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSecurityToken uses a temporary access key.
func TestSecurityToken(t *testing.T) {
	c := newCloud(t, sim.Options{})
	role := newProvider(t, roleSettings(t, c))
	if err := role.api.signer.ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := role.api.signer.current()
	cfg := settings(c)
	cfg.AccessKeyID, cfg.AccessKeySecret = "", ""
	cfg.SDKAccessKeyID, cfg.SDKAccessKeySecret, cfg.SDKSecurityToken = config.Secret(k.id), config.Secret(k.secret), config.Secret(k.token)
	p := newProvider(t, cfg)
	i, err := p.CreateInstance(t.Context(), "pod", "sts-key", cloudinit.Raw(""), provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}
