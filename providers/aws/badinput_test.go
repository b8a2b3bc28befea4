// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"errors"
	"flag"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// right are settings with which the provider opens.
var right = config.Values{
	"aws-access-key-id": sim.KeyID, "aws-secret-key": sim.Secret, "aws-region": sim.Region, "imageid": sim.AMI,
	"subnetid": sim.SubnetA, "securitygroupids": sim.Group, "AWS_EC2_METADATA_DISABLED": "true",
}

func TestSettings(t *testing.T) {
	long := strings.Repeat("x", maxTagValue+1)
	for _, tc := range []struct{ name, value, also, want string }{
		{"aws-secret-key", "", "", "-aws-secret-key (AWS_SECRET_ACCESS_KEY)"},
		{"aws-access-key-id", "", "", "-aws-access-key-id (AWS_ACCESS_KEY_ID)"},
		{"aws-region", "", "", "-aws-region (AWS_REGION)"},
		{"aws-region", "nowhere", "", "-aws-region (AWS_REGION)"},
		{"imageid", "", "", "-imageid (PODVM_AMI_ID)"},
		{"imageid", "debian-12", "", "-imageid (PODVM_AMI_ID)"},
		{"subnetid", "", "", "-subnetid (AWS_SUBNET_ID)"},
		{"subnetid", sim.SubnetA + ",vpc-1", "", "-subnetid (AWS_SUBNET_ID)"},
		{"securitygroupids", "default", "", "-securitygroupids (AWS_SG_IDS)"},
		{"use-lt", "perhaps", "", "-use-lt (USE_PODVM_LAUNCHTEMPLATE)"},
		{"aws-lt-version", "newest", "", "-aws-lt-version (PODVM_LAUNCHTEMPLATE_VERSION)"},
		{"instance-types", "m6a.[", "", "-instance-types (PODVM_INSTANCE_TYPES)"},
		{"aws-instance-type-prices", "m6a.large", "", "-aws-instance-type-prices (AWS_INSTANCE_TYPE_PRICES)"},
		{"aws-instance-type-prices", "m6a.large=-1", "", "-aws-instance-type-prices (AWS_INSTANCE_TYPE_PRICES)"},
		{"tags", "novalue", "", "-tags (TAGS)"},
		{"tags", "aws:x=y", "", "-tags (TAGS)"},
		{"tags", "Name=x", "", "-tags (TAGS)"},
		{"tags", "outrigger-key=x", "", "-tags (TAGS)"},
		{"tags", "x=" + long, "", "-tags (TAGS)"},
		{"use-public-ip", "no way", "", "-use-public-ip (USE_PUBLIC_IP)"},
		{"aws-elastic-ip", "true", "", "-aws-elastic-ip (AWS_ELASTIC_IP)"},
		{"root-volume-size", "10G", "", "-root-volume-size (ROOT_VOLUME_SIZE)"},
		{"root-volume-size", "-1", "", "-root-volume-size (ROOT_VOLUME_SIZE)"},
		{"aws-root-volume-type", "floppy", "", "-aws-root-volume-type (AWS_ROOT_VOLUME_TYPE)"},
		{"disable-cvm", "2", "", "-disable-cvm (DISABLECVM)"},
		{"aws-spot", "cheap", "", "-aws-spot (AWS_SPOT)"},
		{"aws-spot-max-price", "0.1", "", "-aws-spot-max-price (AWS_SPOT_MAX_PRICE)"},
		{"aws-spot-max-price", "cheap", "aws-spot=true", "-aws-spot-max-price (AWS_SPOT_MAX_PRICE)"},
		{"aws-metadata-hop-limit", "0", "", "-aws-metadata-hop-limit (AWS_METADATA_HOP_LIMIT)"},
		{"aws-endpoint-url", "ec2.example", "", "-aws-endpoint-url (AWS_ENDPOINT_URL_EC2)"},
		{"aws-sts-endpoint-url", "://", "", "-aws-sts-endpoint-url (AWS_ENDPOINT_URL_STS)"},
		{"AWS_ENDPOINT_URL", "x", "", "AWS_ENDPOINT_URL"},
		{"aws-ca-bundle", "/nonexistent", "", "-aws-ca-bundle (AWS_CA_BUNDLE)"},
		{"AWS_ROLE_ARN", "caa", "AWS_WEB_IDENTITY_TOKEN_FILE=/t", "AWS_ROLE_ARN"},
		{"AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/caa", "", "AWS_WEB_IDENTITY_TOKEN_FILE"},
		{"AWS_WEB_IDENTITY_TOKEN_FILE", "/t", "", "AWS_ROLE_ARN"},
		{"AWS_EC2_METADATA_SERVICE_ENDPOINT", "nowhere", "", "AWS_EC2_METADATA_SERVICE_ENDPOINT"},
		{"AWS_EC2_METADATA_DISABLED", "maybe", "", "AWS_EC2_METADATA_DISABLED"},
	} {
		t.Run(tc.name+"="+tc.value[:min(len(tc.value), 20)], func(t *testing.T) {
			values := maps.Clone(right)
			values[tc.name] = tc.value
			if name, value, ok := strings.Cut(tc.also, "="); ok {
				values[name] = value
			}
			m := NewManager()
			m.Set(values)
			_, err := m.NewProvider()
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that names %s", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), sim.Secret) {
				t.Errorf("the error has the secret: %v", err)
			}
		})
	}
}

func TestRightSettings(t *testing.T) {
	m := NewManager()
	m.Set(right)
	p, err := m.NewProvider()
	if err != nil {
		t.Fatal(err)
	}
	p.Teardown()
}

// TestFlags are those that other tools and their documents name.
func TestFlags(t *testing.T) {
	flags := flag.NewFlagSet("aws", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	NewManager().ParseCmd(flags)
	for name, want := range map[string]string{
		"aws-access-key-id": "", "aws-secret-key": "", "aws-session-token": "", "aws-region": "", "aws-profile": "", "use-lt": "false", "aws-lt-name": "kata",
		"imageid": "", "instance-type": "m6a.large", "instance-types": "", "keyname": "", "subnetid": "", "securitygroupids": "", "tags": "",
		"use-public-ip": "false", "root-volume-size": "30", "disable-cvm": "false",
	} {
		if f := flags.Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("flag %s is %+v, want the default %q", name, f, want)
		}
	}
}

// TestWrongInTheCloud: what only the cloud can tell is found by ConfigVerifier
// and by the creation.
func TestWrongInTheCloud(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		class  error
		want   string // in ConfigVerifier's error
	}{
		"key":              {func(c *Config) { c.AccessKeyID = "AKIANOBODY" }, provider.ErrUnauthenticated, "AuthFailure"},
		"secret":           {func(c *Config) { c.SecretKey = "not the secret" }, provider.ErrUnauthenticated, "AuthFailure"},
		"session token":    {func(c *Config) { c.SessionToken = "stale" }, provider.ErrUnauthenticated, "AuthFailure"},
		"region":           {func(c *Config) { c.Region = "eu-none-9" }, provider.ErrUnauthenticated, "eu-none-9"},
		"image":            {func(c *Config) { c.Image = "ami-00000000" }, provider.ErrNotFound, "-imageid (PODVM_AMI_ID)"},
		"image not ready":  {func(c *Config) { c.Image = sim.SmallAMI }, provider.ErrInvalidArgument, "-imageid (PODVM_AMI_ID)"},
		"image by BIOS":    {func(c *Config) { c.Image = sim.BIOSAMI }, provider.ErrInvalidArgument, "-imageid (PODVM_AMI_ID)"},
		"other arch":       {func(c *Config) { c.Image = sim.ArmAMI }, provider.ErrInvalidArgument, "-instance-type (PODVM_INSTANCE_TYPE)"},
		"subnet":           {func(c *Config) { c.Subnets = []string{"subnet-00000000"} }, provider.ErrNotFound, "-subnetid (AWS_SUBNET_ID)"},
		"group":            {func(c *Config) { c.SecurityGroups = []string{"sg-00000000"} }, provider.ErrNotFound, "-securitygroupids (AWS_SG_IDS)"},
		"group elsewhere":  {func(c *Config) { c.SecurityGroups = []string{sim.GroupOut} }, provider.ErrInvalidArgument, "-securitygroupids (AWS_SG_IDS)"},
		"key pair":         {func(c *Config) { c.KeyName = "nobody" }, provider.ErrNotFound, "-keyname (SSH_KP_NAME)"},
		"type":             {func(c *Config) { c.InstanceType = "m9z.large" }, provider.ErrInvalidArgument, "-instance-type (PODVM_INSTANCE_TYPE)"},
		"type without SNP": {func(c *Config) { c.InstanceType = "m5.large" }, provider.ErrInvalidArgument, "-instance-type (PODVM_INSTANCE_TYPE)"},
		"template":         {func(c *Config) { c.UseTemplate, c.TemplateName = true, "none" }, provider.ErrNotFound, "-aws-lt-name"},
		"version":          {func(c *Config) { c.UseTemplate, c.TemplateVer = true, "7" }, provider.ErrNotFound, "-aws-lt-name"},
		"endpoint":         {func(c *Config) { c.Endpoint = "https://127.0.0.1:1" }, provider.ErrUnavailable, "127.0.0.1:1"},
		"authority":        {func(c *Config) { c.CABundle = "" }, provider.ErrInvalidArgument, "-aws-ca-bundle (AWS_CA_BUNDLE)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, lively)
			p := s.open(t, tc.change)
			verify := p.ConfigVerifier()
			if verify == nil || !strings.Contains(verify.Error(), tc.want) {
				t.Errorf("ConfigVerifier: %v, want an error with %s", verify, tc.want)
			}
			_, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
			if !errors.Is(err, tc.class) {
				t.Errorf("CreateInstance: %v, want class %v", err, tc.class)
			}
			for _, err := range []error{verify, err} {
				if err != nil && strings.Contains(err.Error(), sim.Secret) {
					t.Errorf("the error has the secret: %v", err)
				}
			}
			s.wantNothing(t)
		})
	}
}

// TestAllThatIsWrong: one look finds everything.
func TestAllThatIsWrong(t *testing.T) {
	options := lively
	options.Addresses = 1
	options.Denied = map[string]bool{"ec2:TerminateInstances": true}
	s := newStand(t, options)
	s.AddAddress(nil)
	create(t, s.open(t), "k") // of which a deletion can be tried
	err := s.open(t, variants["elastic"], func(c *Config) {
		c.Image, c.KeyName, c.RootVolumeSize = sim.BIOSAMI, "nobody", 1
		c.Subnets, c.SecurityGroups = []string{"subnet-00000000", sim.SubnetA, sim.Elsewhere}, []string{"sg-00000000"}
		c.InstanceTypes = []string{"x1e.*"}
	}).ConfigVerifier()
	for _, want := range []string{"-imageid", "-keyname", "-subnetid", "2 VPCs", "-securitygroupids", "-root-volume-size", "-instance-types", "-aws-elastic-ip", "ec2:TerminateInstances"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

func TestUserDataTooLarge(t *testing.T) {
	s := newStand(t, lively)
	_, err := s.open(t).CreateInstance(t.Context(), "web", "k", cloudinit.Raw(strings.Repeat("#", maxUserData+1)), specOf("k"))
	if !errors.Is(err, provider.ErrInvalidArgument) || s.World.Calls()["ec2:RunInstances"] != 0 {
		t.Errorf("error %v, calls %v", err, s.World.Calls())
	}
}

func TestTooManyTags(t *testing.T) {
	s := newStand(t, lively)
	spec := specOf("k")
	for i := range maxTags {
		spec.Tags[strings.Repeat("t", i+1)] = "x"
	}
	if _, err := s.open(t).CreateInstance(t.Context(), "web", "k", userData, spec); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "TAGS") {
		t.Errorf("error %v", err)
	}
}

// TestClockIsOff: the SDK learns the cloud's time from its replies.
func TestClockIsOff(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute, time.Hour, -time.Hour} {
		options := lively
		options.Clock = off
		s := newStand(t, options)
		create(t, s.open(t), "k")
	}
}

func TestThrottled(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	s.World.Script(cloudsim.Refused("ec2:RunInstances", 503, "RequestLimitExceeded").Repeated(3))
	create(t, p, "k")
	s.World.Script(cloudsim.Refused("ec2:RunInstances", 503, "RequestLimitExceeded").Repeated(-1))
	if _, err := p.CreateInstance(t.Context(), "web", "other", userData, specOf("other")); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// TestLostReplies: the SDK repeats a call whose reply it has lost, and the
// token keeps it from making two.
func TestLostReplies(t *testing.T) {
	s := newStand(t, lively)
	s.World.Script(cloudsim.LostReply("ec2:RunInstances"), cloudsim.LostReply("ec2:AllocateAddress"), cloudsim.LostReply("ec2:AssociateAddress"))
	p := s.open(t, variants["elastic"])
	made := create(t, p, "k")
	if got := len(s.World.Own()); got != 4 { // with disk, interface and address
		t.Errorf("made %v", s.World.Own())
	}
	s.World.Script(cloudsim.LostReply("ec2:TerminateInstances"), cloudsim.LostReply("ec2:ReleaseAddress"))
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}
