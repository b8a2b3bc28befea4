// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// TestSettingsThatAreWrong are found without asking the cloud. Every error
// names flag and variable.
func TestSettingsThatAreWrong(t *testing.T) {
	c := newCloud(t, sim.Options{})
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		names  []string
	}{
		"no credentials": {func(c *Config) { c.AccessKeyID, c.AccessKeySecret = "", "" },
			[]string{"ALIBABACLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABACLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
				"ALIBABA_CLOUD_ROLE_ARN", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_OIDC_TOKEN_FILE"}},
		"no secret":     {func(c *Config) { c.AccessKeySecret = "" }, []string{"ALIBABACLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"}},
		"only a secret": {func(c *Config) { c.AccessKeyID = "" }, []string{"ALIBABACLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"}},
		"only a token":  {func(c *Config) { c.AccessKeyID, c.AccessKeySecret, c.SecurityToken = "", "", "t" }, []string{"ALIBABACLOUD_ACCESS_KEY_ID"}},
		"two keys":      {func(c *Config) { c.SDKAccessKeyID = "another" }, []string{"-alibabacloud-access-key-id", "ALIBABACLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"}},
		"two secrets":   {func(c *Config) { c.SDKAccessKeySecret = "another" }, []string{"ALIBABACLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"}},
		"two tokens":    {func(c *Config) { c.SecurityToken, c.SDKSecurityToken = "a", "b" }, []string{"ALIBABACLOUD_SECURITY_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN"}},
		"half a role": {func(c *Config) { c.AccessKeyID, c.AccessKeySecret, c.RoleARN = "", "", sim.Role },
			[]string{"ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "ALIBABA_CLOUD_OIDC_TOKEN_FILE"}},
		"no role": {func(c *Config) {
			c.AccessKeyID, c.AccessKeySecret, c.RoleARN, c.OIDCProviderARN, c.OIDCTokenFile = "", "", "caa-alibaba", sim.OIDCProvider, "/token"
		}, []string{"-alibabacloud-role-arn", "ALIBABA_CLOUD_ROLE_ARN", "caa-alibaba"}},
		"no session name": {func(c *Config) {
			c.AccessKeyID, c.AccessKeySecret, c.RoleARN, c.OIDCProviderARN, c.OIDCTokenFile, c.RoleSession = "", "", sim.Role, sim.OIDCProvider, "/token", "a b"
		}, []string{"ALIBABA_CLOUD_ROLE_SESSION_NAME"}},
		"no region":      {func(c *Config) { c.Region = "Beijing" }, []string{"-region", "REGION", "Beijing"}},
		"no image":       {func(c *Config) { c.ImageID = "" }, []string{"-imageid", "IMAGEID"}},
		"no vSwitch":     {func(c *Config) { c.VSwitchIDs = nil }, []string{"-vswitch-id", "VSWITCH_ID"}},
		"bad vSwitch":    {func(c *Config) { c.VSwitchIDs = []string{"vpc-1"} }, []string{"VSWITCH_ID", "vpc-1"}},
		"vSwitch twice":  {func(c *Config) { c.VSwitchIDs = []string{"vsw-1", "vsw-1"} }, []string{"VSWITCH_ID"}},
		"no groups":      {func(c *Config) { c.SecurityGroups = nil }, []string{"-security-group-ids", "SECURITY_GROUP_IDS"}},
		"bad group":      {func(c *Config) { c.SecurityGroups = []string{"cn-beijing"} }, []string{"SECURITY_GROUP_IDS", "cn-beijing"}},
		"bad VPC":        {func(c *Config) { c.VPCID = "vsw-1" }, []string{"-vpc-id"}},
		"bad type":       {func(c *Config) { c.InstanceType = "g8i.xlarge" }, []string{"-instance-type", "PODVM_INSTANCE_TYPE", "INSTANCE_TYPE", "g8i.xlarge"}},
		"two types":      {func(c *Config) { c.InstanceType, c.EarlierInstanceType = "ecs.a.b", "ecs.c.d" }, []string{"PODVM_INSTANCE_TYPE", "INSTANCE_TYPE"}},
		"small disk":     {func(c *Config) { c.DiskSize = 1 }, []string{"-system-disk-size", "SYSTEM_DISK_SIZE"}},
		"bad category":   {func(c *Config) { c.DiskCategory = "floppy" }, []string{"ALIBABACLOUD_SYSTEM_DISK_CATEGORY"}},
		"bandwidth":      {func(c *Config) { c.Bandwidth = 1000 }, []string{"ALIBABACLOUD_BANDWIDTH"}},
		"public address": {func(c *Config) { c.PublicIP = "any" }, []string{"ALIBABACLOUD_PUBLIC_IP"}},
		"spot":           {func(c *Config) { c.Spot = "yes" }, []string{"ALIBABACLOUD_SPOT"}},
		"spot limit":     {func(c *Config) { c.Spot, c.SpotLimit = spotLimited, "cheap" }, []string{"ALIBABACLOUD_SPOT_PRICE_LIMIT"}},
		"a limit alone":  {func(c *Config) { c.SpotLimit = "1" }, []string{"ALIBABACLOUD_SPOT_PRICE_LIMIT"}},
		"tokens":         {func(c *Config) { c.HTTPTokens = "never" }, []string{"ALIBABACLOUD_HTTP_TOKENS"}},
		"fallback":       {func(c *Config) { c.Fallback = "any" }, []string{"ALIBABACLOUD_FALLBACK"}},
		"tag":            {func(c *Config) { c.Tags = map[string]string{"acs:x": "y"} }, []string{"-tags", "TAGS", "acs:x"}},
		"our tag":        {func(c *Config) { c.Tags = map[string]string{provider.TagKey: "y"} }, []string{"TAGS", provider.TagKey}},
		"long tag":       {func(c *Config) { c.Tags = map[string]string{"a": strings.Repeat("b", 129)} }, []string{"TAGS"}},
		"many tags":      {func(c *Config) { c.Tags = elevenTags() }, []string{"TAGS", "11"}},
		"endpoint":       {func(c *Config) { c.ECSEndpoint = "https://ecs" }, []string{"ALIBABACLOUD_ECS_ENDPOINT", "https://ecs"}},
		"port":           {func(c *Config) { c.VPCEndpoint = "host:port" }, []string{"ALIBABACLOUD_VPC_ENDPOINT"}},
		"no CA file":     {func(c *Config) { c.CAFile = "/does/not/exist" }, []string{"ALIBABACLOUD_CA_FILE", "/does/not/exist"}},
		"no CA":          {func(c *Config) { c.CAFile = notPEM }, []string{"ALIBABACLOUD_CA_FILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(c)
			test.change(&cfg)
			_, err := New(cfg)
			wantError(t, err, provider.ErrInvalidArgument, test.names...)
		})
	}
	if calls := c.Calls(); len(calls) != 0 {
		t.Errorf("the cloud was asked: %v", calls)
	}
}

func elevenTags() map[string]string {
	tags := map[string]string{}
	for n := range 11 {
		tags[string(rune('a'+n))] = "x"
	}
	return tags
}

// wantError looks for class, words, and that no secret is in the text.
func wantError(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("error %v, want class %v", err, class)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not name %s", err, word)
		}
	}
	if strings.Contains(err.Error(), sim.AccessSecret) || strings.Contains(err.Error(), "UserData") {
		t.Errorf("error %q tells secrets", err)
	}
}

// TestEarlierNameOfTheType is read where the other is not set.
func TestEarlierNameOfTheType(t *testing.T) {
	t.Setenv("INSTANCE_TYPE", "ecs.g8i.2xlarge")
	m := NewManager()
	m.LoadEnv()
	for name, value := range map[string]string{"IMAGEID": "m-1", "VSWITCH_ID": "vsw-1", "SECURITY_GROUP_IDS": "sg-1", "ALIBABA_CLOUD_ACCESS_KEY_ID": "a", "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "b"} {
		t.Setenv(name, value)
	}
	m.LoadEnv()
	cfg, err := m.Config()
	if err != nil {
		t.Fatal(err)
	}
	opened, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened.cfg.InstanceType; got != "ecs.g8i.2xlarge" {
		t.Errorf("type %s", got)
	}
}

// TestVerify finds what is wrong with settings that only the cloud knows, all
// at once.
func TestVerify(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*sim.Cloud, *Config)
		class  error
		names  []string
	}{
		"secret":  {func(_ *sim.Cloud, c *Config) { c.AccessKeySecret = "wrong" }, provider.ErrUnauthenticated, []string{"ALIBABACLOUD_ACCESS_KEY_SECRET"}},
		"key":     {func(_ *sim.Cloud, c *Config) { c.AccessKeyID = "wrong" }, provider.ErrUnauthenticated, []string{"ALIBABACLOUD_ACCESS_KEY_ID"}},
		"token":   {func(_ *sim.Cloud, c *Config) { c.SecurityToken = "wrong" }, provider.ErrUnauthenticated, []string{"STS token"}},
		"region":  {func(_ *sim.Cloud, c *Config) { c.Region = "cn-atlantis" }, provider.ErrInvalidArgument, []string{"REGION", "cn-atlantis"}},
		"image":   {func(_ *sim.Cloud, c *Config) { c.ImageID = "m-none" }, provider.ErrInvalidArgument, []string{"IMAGEID", "m-none"}},
		"vSwitch": {func(_ *sim.Cloud, c *Config) { c.VSwitchIDs = []string{"vsw-none"} }, provider.ErrInvalidArgument, []string{"VSWITCH_ID", "vsw-none"}},
		"VPCs":    {func(_ *sim.Cloud, c *Config) { c.VSwitchIDs = append(c.VSwitchIDs, sim.StrayVSwitch) }, provider.ErrInvalidArgument, []string{"VSWITCH_ID", sim.StrayVSwitch}},
		"VPC":     {func(_ *sim.Cloud, c *Config) { c.VPCID = "vpc-another" }, provider.ErrInvalidArgument, []string{"-vpc-id", "vpc-another", sim.VPC}},
		"group":   {func(_ *sim.Cloud, c *Config) { c.SecurityGroups = []string{"sg-none"} }, provider.ErrInvalidArgument, []string{"SECURITY_GROUP_IDS", "sg-none"}},
		"stray":   {func(_ *sim.Cloud, c *Config) { c.SecurityGroups = []string{sim.StrayGroup} }, provider.ErrInvalidArgument, []string{"SECURITY_GROUP_IDS", sim.StrayGroup, sim.VPC}},
		"type":    {func(_ *sim.Cloud, c *Config) { c.InstanceType = "ecs.none.large" }, provider.ErrInvalidArgument, []string{"PODVM_INSTANCE_TYPE", "ecs.none.large"}},
		"zone":    {func(_ *sim.Cloud, c *Config) { c.InstanceType = "ecs.r8i.xlarge" }, provider.ErrCapacity, []string{"PODVM_INSTANCE_TYPE", "ecs.r8i.xlarge", "cn-beijing-k"}},
		"stock":   {func(s *sim.Cloud, _ *Config) { s.SellOut("ecs.g8i.xlarge") }, provider.ErrCapacity, []string{"ecs.g8i.xlarge"}},
		"TDX":     {func(_ *sim.Cloud, c *Config) { c.InstanceType = "ecs.e-c1m1.large" }, provider.ErrInvalidArgument, []string{"TDX"}},
		"keyname": {func(_ *sim.Cloud, c *Config) { c.KeyPair = "none" }, provider.ErrInvalidArgument, []string{"KEYNAME", "none"}},
		"several": {func(_ *sim.Cloud, c *Config) {
			c.ImageID, c.KeyPair, c.SecurityGroups, c.VSwitchIDs = "m-none", "none", []string{"sg-none"}, []string{"vsw-none"}
		},
			provider.ErrInvalidArgument, []string{"IMAGEID", "KEYNAME", "SECURITY_GROUP_IDS", "VSWITCH_ID"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, sim.Options{})
			cfg := settings(c)
			test.change(c, &cfg)
			wantError(t, newProvider(t, cfg).ConfigVerifier(), test.class, test.names...)
			wantNothing(t, c)
		})
	}
	c := newCloud(t, sim.Options{MaxInstances: 1})
	p := newProvider(t, settings(c))
	mustCreate(t, p, "the-only-one", provider.InstanceTypeSpec{})
	wantError(t, p.ConfigVerifier(), provider.ErrQuota, "QuotaExceed", "quota centre")
}

// TestWithoutOnePermission takes each action away in turn: whatever fails names
// it.
func TestWithoutOnePermission(t *testing.T) {
	for _, action := range policyActions(t) {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, sim.Options{HeldByAddress: true})
			cfg := settings(c)
			everything(t, c, cfg) // before, so that the tour itself is right
			c.Deny(action)
			errs := tour(t, cfg)
			named := slices.ContainsFunc(errs, func(err error) bool {
				return errors.Is(err, provider.ErrPermissionDenied) && strings.Contains(err.Error(), "must allow "+action)
			})
			if !named && action != "ecs:DescribePrice" { // which is only for the order
				t.Errorf("no error names %s: %v", action, errs)
			}
		})
	}
}

// TestTokenOfTheAccount is each thing that may be wrong with it.
func TestTokenOfTheAccount(t *testing.T) {
	for name, change := range map[string]func(*sim.Claims, *Config){
		"expired":    func(claims *sim.Claims, _ *Config) { claims.Expire = time.Now().Add(-time.Hour).Unix() },
		"audience":   func(claims *sim.Claims, _ *Config) { claims.Audience = []string{"kubernetes"} },
		"issuer":     func(claims *sim.Claims, _ *Config) { claims.Issuer = "https://another.example" },
		"account":    func(claims *sim.Claims, _ *Config) { claims.Subject = "system:serviceaccount:default:default" },
		"role":       func(_ *sim.Claims, c *Config) { c.RoleARN += "-none" },
		"provider":   func(_ *sim.Claims, c *Config) { c.OIDCProviderARN += "-none" },
		"no file":    func(_ *sim.Claims, c *Config) { c.OIDCTokenFile += "-none" },
		"wrong file": func(_ *sim.Claims, c *Config) { c.OIDCTokenFile = c.CAFile },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, sim.Options{})
			cfg := roleSettings(t, c)
			claims := sim.ServiceAccount()
			change(&claims, &cfg)
			if name != "no file" && name != "wrong file" {
				writeToken(t, cfg.OIDCTokenFile, claims)
			}
			wantError(t, newProvider(t, cfg).ConfigVerifier(), provider.ErrUnauthenticated, "ALIBABA_CLOUD_OIDC_TOKEN_FILE")
		})
	}
}

// TestClock: ten minutes are too few for the cloud to mind, twenty are not.
func TestClock(t *testing.T) {
	for off, wrong := range map[time.Duration]bool{10 * time.Minute: false, -10 * time.Minute: false, 20 * time.Minute: true, -20 * time.Minute: true} {
		c := newCloud(t, sim.Options{Clock: off})
		for _, cfg := range []Config{settings(c), roleSettings(t, c)} {
			p := newProvider(t, cfg)
			i, err := create(t, p, "clock", provider.InstanceTypeSpec{MultiNic: true})
			if wrong {
				wantError(t, err, provider.ErrUnauthenticated, "clock")
				continue
			}
			if err != nil {
				t.Fatalf("%v: %v", off, err)
			}
			if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
				t.Errorf("%v: %v", off, err)
			}
			wantNothing(t, c)
		}
	}
}

// TestUnreachable: no server, a server that hangs up, one that is not trusted,
// one that does not speak TLS.
func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	closed.Close()
	c := newCloud(t, sim.Options{})
	for name, test := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"nobody":      {func(c *Config) { c.ECSEndpoint, c.VPCEndpoint = nobody, nobody }, []string{nobody, "refused"}},
		"not trusted": {func(c *Config) { c.CAFile = "" }, []string{"certificate", "ALIBABACLOUD_CA_FILE"}},
		"off limits":  {func(c *Config) { c.ECSEndpoint, c.VPCEndpoint = "", "" }, []string{"loopback", "cn-beijing.aliyuncs.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(c)
			test.change(&cfg)
			p := newProvider(t, cfg)
			_, err := p.CreateInstance(t.Context(), "pod", "unreachable", cloudinit.Raw("#cloud-config\n# secret\n"), provider.InstanceTypeSpec{})
			wantError(t, err, provider.ErrUnavailable, test.words...)
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes: %.200s", len(err.Error()), err)
			}
			wantError(t, p.ConfigVerifier(), provider.ErrUnavailable, test.words...)
		})
	}
	t.Run("hangs up", func(t *testing.T) {
		c.Script(cloudsim.Unreachable("*").Repeated(attempts))
		_, err := newProvider(t, settings(c)).ListInstances(t.Context(), map[string]string{"a": "b"})
		wantError(t, err, provider.ErrUnavailable, c.Endpoint)
	})
}

// TestSpecsThatAreWrong are refused before anything is made.
func TestSpecsThatAreWrong(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	for name, test := range map[string]struct {
		spec  provider.InstanceTypeSpec
		data  string
		words []string
	}{
		"user-data":    {data: strings.Repeat("x", maxUserData+1), words: []string{"16385", "16384", "make initdata"}},
		"volumes":      {spec: provider.InstanceTypeSpec{Volumes: []provider.CloudVolume{{DiskID: "d-1"}}}, words: []string{"volumes"}},
		"type":         {spec: provider.InstanceTypeSpec{InstanceType: "ecs.none.large"}, words: []string{"ecs.none.large"}},
		"other type":   {spec: provider.InstanceTypeSpec{InstanceType: "ecs.g8i.2xlarge"}, words: []string{"ecs.g8i.2xlarge"}},
		"size":         {spec: provider.InstanceTypeSpec{VCPUs: 400}, words: []string{"400"}},
		"architecture": {spec: provider.InstanceTypeSpec{Arch: "s390x"}, words: []string{"s390x"}},
		"many tags":    {spec: provider.InstanceTypeSpec{Tags: twentyTags()}, words: []string{"20"}},
		"a tag":        {spec: provider.InstanceTypeSpec{Tags: map[string]string{"aliyun": "x"}}, words: []string{"aliyun"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.CreateInstance(t.Context(), "pod", "spec", cloudinit.Raw(test.data), test.spec)
			wantError(t, err, provider.ErrInvalidArgument, test.words...)
		})
	}
	// As much as the cloud takes arrives.
	i, err := p.CreateInstance(t.Context(), "pod", "spec", cloudinit.Raw(strings.Repeat("x", maxUserData)), provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := c.UserData(i.ID); len(text) != maxUserData {
		t.Errorf("%d bytes arrived", len(text))
	}
}

func twentyTags() map[string]string {
	tags := map[string]string{}
	for n := range 20 {
		tags[string(rune('a'+n))] = "x"
	}
	return tags
}

// TestPrivateEndpoints: nodes without a way to the internet take their role, and all else,
// by addresses inside of the VPC.
func TestPrivateEndpoints(t *testing.T) {
	cfg := config.Defaults[Config]()
	cfg.Region, cfg.PrivateEndpoints = "cn-beijing", true
	a := &api{cfg: cfg}
	got := []string{newSTS(cfg, nil).endpoint, *a.settings("", "ecs").Endpoint, *a.settings("", "vpc").Endpoint, cfg.slbEndpoint()}
	want := []string{"sts-vpc.cn-beijing.aliyuncs.com", "ecs-vpc.cn-beijing.aliyuncs.com", "vpc-vpc.cn-beijing.aliyuncs.com", "slb-vpc.cn-beijing.aliyuncs.com"}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	cfg.STSEndpoint, cfg.SLBEndpoint = "sts.example", "slb.example"
	if got := newSTS(cfg, nil).endpoint; got != "sts.example" || cfg.slbEndpoint() != "slb.example" {
		t.Errorf("what is named does not win: %s, %s", got, cfg.slbEndpoint())
	}
	cfg = config.Defaults[Config]()
	a = &api{cfg: cfg}
	if got := newSTS(cfg, nil).endpoint; got != "sts.cn-beijing.aliyuncs.com" || a.settings("", "ecs").Endpoint != nil {
		t.Errorf("without: %s", got)
	}
}
