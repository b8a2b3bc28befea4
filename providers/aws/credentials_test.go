// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

const (
	issuerURL = "https://oidc.eks.eu-test-1.amazonaws.com/id/TEST"
	subject   = "system:serviceaccount:confidential-containers-system:cloud-api-adaptor"
	audience  = "sts.amazonaws.com"
	role      = "arn:aws:iam::123456789012:role/caa"
)

// withIdentity is a stand whose provider takes a role by a service account's
// token, which write writes.
func withIdentity(t *testing.T) (s *stand, write func(subject, audience string, life time.Duration)) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	options := lively
	options.Issuer = &sim.Issuer{URL: issuerURL, Audience: audience, Subject: subject, Role: role, Key: &key.PublicKey}
	s = newStand(t, options)
	file := filepath.Join(t.TempDir(), "token")
	s.cfg.AccessKeyID, s.cfg.SecretKey, s.cfg.RoleARN, s.cfg.TokenFile = "", "", role, file
	return s, func(subject, audience string, life time.Duration) {
		token := sim.Token(key, issuerURL, subject, audience, time.Now().Add(life))
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWebIdentity is IRSA: the token's file, AssumeRoleWithWebIdentity over
// TLS, and then calls signed with what that gave.
func TestWebIdentity(t *testing.T) {
	s, write := withIdentity(t)
	write(subject, audience, time.Hour)
	p := s.open(t)
	made := create(t, p, "k")
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
	if n := s.World.Calls()["sts:AssumeRoleWithWebIdentity"]; n != 1 {
		t.Errorf("AssumeRoleWithWebIdentity was called %d times", n)
	}
	s.wantNothing(t)
}

func TestWrongWebIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		subject, audience string
		life              time.Duration
		change            func(*Config)
		class             error
		want              string
	}{
		"subject":  {"system:serviceaccount:default:default", audience, time.Hour, nil, provider.ErrPermissionDenied, "sts:AssumeRoleWithWebIdentity"},
		"audience": {subject, "somebody.else", time.Hour, nil, provider.ErrUnauthenticated, "audience"},
		"expired":  {subject, audience, -time.Hour, nil, provider.ErrUnauthenticated, "ExpiredToken"},
		"role":     {subject, audience, time.Hour, func(c *Config) { c.RoleARN += "x" }, provider.ErrPermissionDenied, "sts:AssumeRoleWithWebIdentity"},
		"no file":  {subject, audience, time.Hour, func(c *Config) { c.TokenFile += "x" }, provider.ErrUnauthenticated, "AWS_WEB_IDENTITY_TOKEN_FILE"},
		"no STS":   {subject, audience, time.Hour, func(c *Config) { c.STSEndpoint = "https://127.0.0.1:1" }, provider.ErrUnavailable, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			s, write := withIdentity(t)
			write(tc.subject, tc.audience, tc.life)
			var changes []func(*Config)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			p := s.open(t, changes...)
			_, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
			if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want class %v and %s", err, tc.class, tc.want)
			}
			data, _ := os.ReadFile(s.cfg.TokenFile)
			if err != nil && strings.Contains(err.Error(), string(data)) {
				t.Error("the error has the token")
			}
		})
	}
}

// TestTokenIsReadAgain: the kubelet renews the file, and no process starts
// again for that.
func TestTokenIsReadAgain(t *testing.T) {
	s, write := withIdentity(t)
	write(subject, audience, -time.Hour)
	p := s.open(t)
	if _, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k")); !errors.Is(err, provider.ErrUnauthenticated) {
		t.Fatalf("with an expired token: %v", err)
	}
	write(subject, audience, time.Hour)
	create(t, p, "k")
}

func TestProfile(t *testing.T) {
	s := newStand(t, lively)
	dir := t.TempDir()
	credentials, settings := filepath.Join(dir, "credentials"), filepath.Join(dir, "config")
	for file, text := range map[string]string{
		credentials: "[pods]\naws_access_key_id = " + sim.KeyID + "\naws_secret_access_key = " + sim.Secret + "\n",
		settings:    "[profile pods]\nregion = " + sim.Region + "\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile := func(c *Config) {
		c.AccessKeyID, c.SecretKey, c.Region = "", "", ""
		c.Profile, c.CredentialsFile, c.ConfigFile = "pods", credentials, settings
	}
	if made := create(t, s.open(t, profile), "k"); made.Region != sim.Region {
		t.Errorf("made %+v", made)
	}
	_, err := s.open(t, profile, func(c *Config) { c.Profile = "none" }).CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-aws-profile (AWS_PROFILE)") {
		t.Errorf("a profile that does not exist: %v", err)
	}
}

// TestNoCredentials: with nothing configured the SDK looks for some, finds
// none here, and the error says what to set.
func TestNoCredentials(t *testing.T) {
	s := newStand(t, lively)
	_, err := s.open(t, func(c *Config) { c.AccessKeyID, c.SecretKey = "", "" }).CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
	if !errors.Is(err, provider.ErrUnauthenticated) || !strings.Contains(err.Error(), "AWS_ROLE_ARN") {
		t.Errorf("error %v", err)
	}
}

// metadataAt serves a metadata service on loopback.
func metadataAt(t *testing.T, m sim.Metadata) func(*Config) {
	t.Helper()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return func(c *Config) {
		c.Region, c.KeyName, c.Subnets, c.SecurityGroups = "", "", nil, nil
		c.MetadataDisabled, c.MetadataEndpoint = false, server.URL
	}
}

// TestDiscovers: what is not configured is that of the machine.
func TestDiscovers(t *testing.T) {
	s := newStand(t, lively)
	got := s.inspect(t, create(t, s.open(t, metadataAt(t, sim.StandardMetadata())), "k").ID)
	if got.Subnet != sim.SubnetA || got.Key != sim.Key || !slices.Equal(got.NICs[0].Groups, []string{sim.Group, sim.Group2}) {
		t.Errorf("made %+v", got)
	}
}

// TestDiscoversGroupsOnlyWithTheirSubnet: those of another network would be
// refused.
func TestDiscoversGroupsOnlyWithTheirSubnet(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t, metadataAt(t, sim.StandardMetadata()), func(c *Config) { c.Subnets = []string{sim.SubnetB} })
	if got := s.inspect(t, create(t, p, "k").ID); got.Subnet != sim.SubnetB || len(got.NICs[0].Groups) != 0 {
		t.Errorf("made %+v", got)
	}
}

func TestDiscoversNothing(t *testing.T) {
	s := newStand(t, lively)
	_, err := s.open(t, metadataAt(t, sim.Metadata{})).CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
	for _, want := range []string{"-aws-region (AWS_REGION)", "-subnetid (AWS_SUBNET_ID)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}
