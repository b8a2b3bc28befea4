// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
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
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

// TestBadSettings: each is refused before anybody is asked, and named by flag
// and variable.
func TestBadSettings(t *testing.T) {
	s := newStand(t)
	for name, tc := range map[string]struct {
		change func(*Config)
		words  []string
	}{
		"no project":         {func(c *Config) { c.Project = "" }, []string{"-gcp-project-id (GCP_PROJECT_ID)"}},
		"project":            {func(c *Config) { c.Project = "Not A Project" }, []string{"GCP_PROJECT_ID", "Not A Project"}},
		"no zone":            {func(c *Config) { c.Zones = nil }, []string{"-zone (GCP_ZONE)"}},
		"zone":               {func(c *Config) { c.Zones = []string{"us-central1"} }, []string{"GCP_ZONE", "us-central1"}},
		"zone twice":         {func(c *Config) { c.Zones = []string{"us-central1-a", "us-central1-a"} }, []string{"GCP_ZONE", "twice"}},
		"no network":         {func(c *Config) { c.Network = "" }, []string{"-network (GCP_NETWORK)"}},
		"network":            {func(c *Config) { c.Network = "a/b" }, []string{"GCP_NETWORK", "a/b"}},
		"subnetwork":         {func(c *Config) { c.Subnetwork = "regions/x/subnetworks/" }, []string{"-subnetwork (GCP_SUBNETWORK)"}},
		"image":              {func(c *Config) { c.Image = "UPPER" }, []string{"-image-name (PODVM_IMAGE_NAME)", "UPPER"}},
		"machine type":       {func(c *Config) { c.MachineType = "" }, []string{"-machine-type (GCP_MACHINE_TYPE)"}},
		"disk type":          {func(c *Config) { c.DiskType = "p d" }, []string{"-disk-type (GCP_DISK_TYPE)"}},
		"price":              {func(c *Config) { c.Prices = map[string]string{"e2-medium": "free"} }, []string{"GCP_MACHINE_PRICES", "free"}},
		"network tag":        {func(c *Config) { c.NetworkTags = []string{"A"} }, []string{"GCP_NETWORK_TAGS"}},
		"label key":          {func(c *Config) { c.Labels = map[string]string{"Team": "a"} }, []string{"-gcp-labels (GCP_LABELS)", "Team"}},
		"label value":        {func(c *Config) { c.Labels = map[string]string{"team": "A B"} }, []string{"GCP_LABELS", "A B"}},
		"owner label":        {func(c *Config) { c.Labels = map[string]string{provider.TagKey: "x"} }, []string{"GCP_LABELS"}},
		"plain http":         {func(c *Config) { c.Endpoint = "http://127.0.0.1" }, []string{"-gcp-endpoint (GCP_ENDPOINT)", "https"}},
		"CA":                 {func(c *Config) { c.CAFile = "/nowhere" }, []string{"-gcp-ca-file (GCP_CA_FILE)"}},
		"second subnetwork":  {func(c *Config) { c.SecondarySubnetwork = "x" }, []string{"GCP_SECONDARY_SUBNETWORK"}},
		"same network twice": {func(c *Config) { c.SecondaryNetwork = c.Network }, []string{"GCP_SECONDARY_NETWORK"}},
		"credentials file":   {func(c *Config) { c.Credentials = "/nowhere" }, []string{"-gcp-credentials (GCP_CREDENTIALS)"}},
		"other file":         {func(c *Config) { c.Credentials, c.CredentialsFile = "", "/nowhere" }, []string{"GOOGLE_APPLICATION_CREDENTIALS", "/nowhere"}},
		"no JSON":            {func(c *Config) { c.Credentials = `{"type": hunter2` }, []string{"GCP_CREDENTIALS", "JSON"}},
		"user credentials":   {func(c *Config) { c.Credentials = `{"type": "authorized_user"}` }, []string{"GCP_CREDENTIALS", "authorized_user"}},
		"private key": {func(c *Config) {
			c.Credentials = `{"type":"service_account","client_email":"a@b","private_key":"hunter2"}`
		},
			[]string{"GCP_CREDENTIALS", "private_key"}},
		"program as source": {func(c *Config) {
			c.Credentials = `{"type":"external_account","audience":"a","token_url":"https://x","credential_source":{"executable":{"command":"/bin/sh"}}}`
		}, []string{"GCP_CREDENTIALS", "credential_source.file"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := s.cfg
			tc.change(&cfg)
			_, err := New(cfg)
			if !errors.Is(err, provider.ErrInvalidArgument) {
				t.Fatalf("%v", err)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error does not mention %q: %v", word, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	if n := len(s.World.Calls()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// TestWhatTheCloudRefuses: creations with something that does not exist, and
// what ConfigVerifier says of the same.
func TestWhatTheCloudRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		word   string
		// unused is for what a creation does not look at.
		unused bool
	}{
		"image":        {func(c *Config) { c.Image = "gone" }, "gone", false},
		"no image":     {func(c *Config) { c.Image = "" }, "PODVM_IMAGE_NAME", false},
		"big image":    {func(c *Config) { c.Image = sim.BigImage }, "20", false},
		"subnetwork":   {func(c *Config) { c.Subnetwork = "gone" }, "gone", false},
		"none at all":  {func(c *Config) { c.Subnetwork = "" }, "subnet", false},
		"network":      {func(c *Config) { c.Network, c.Subnetwork = "gone", "" }, "gone", false},
		"machine type": {func(c *Config) { c.MachineType = "e2-huge" }, "e2-huge", false},
		"disk type":    {func(c *Config) { c.DiskType = "pd-gone" }, "pd-gone", false},
		"zone":         {func(c *Config) { c.Zones = []string{"mars-north1-a"} }, "mars-north1-a", false},
		"project":      {func(c *Config) { c.Project = "other-project" }, "other-project", false},
		"not confidential": {func(c *Config) {
			c.ConfidentialType, c.MachineType = "TDX", "e2-medium"
		}, "TDX", true},
		"image without the feature": {func(c *Config) {
			c.ConfidentialType, c.Image, c.RootDisk = "SEV", sim.BigImage, 30
		}, "SEV", true},
		"manager tag": {func(c *Config) { c.Tags = map[string]string{"env": "gone"} }, "gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			tc.change(&s.cfg)
			p := s.mustOpen(t)
			made, err := p.CreateInstance(t.Context(), "web", key, cloudinit.Raw("x"), spec(key))
			if err == nil || made != nil || provider.Retryable(err) || !strings.Contains(err.Error(), tc.word) {
				if !tc.unused || err == nil && name == "manager tag" {
					t.Errorf("create: %v, %v", made, err)
				}
			}
			if made == nil {
				s.wantNothing(t)
			}
			if err := p.ConfigVerifier(); name != "manager tag" && name != "not confidential" && (err == nil || !strings.Contains(err.Error(), tc.word)) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestEverythingWrongIsReportedAtOnce(t *testing.T) {
	s := newStand(t)
	s.cfg.Image, s.cfg.Subnetwork, s.cfg.DiskType, s.cfg.MachineType = "gone-image", "gone-subnet", "gone-disk", "gone-type"
	s.Deny("compute.instances.delete", "compute.instances.create")
	s.SetQuota("CPUS", 0)
	err := s.mustOpen(t).ConfigVerifier()
	for _, word := range []string{
		"-image-name (PODVM_IMAGE_NAME)", "gone-image", "-subnetwork (GCP_SUBNETWORK)", "gone-subnet", "-disk-type (GCP_DISK_TYPE)", "gone-disk",
		"-machine-type (GCP_MACHINE_TYPE)", "gone-type", "compute.instances.create, compute.instances.delete", "CPUS",
	} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not mention %q: %v", word, err)
		}
	}
}

// TestEachPermission is named when it is missing, before anything is made and
// by the call that needs it.
func TestEachPermission(t *testing.T) {
	for _, name := range role() {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			everything(&s.cfg)
			s.Deny(name)
			p := s.mustOpen(t)
			if err := p.ConfigVerifier(); !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), name) {
				t.Errorf("verify: %v", err)
			}
			made, err := p.CreateInstance(t.Context(), "web", key, cloudinit.Raw("x"), spec(key))
			if err != nil && (!errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), name)) {
				t.Errorf("create: %v, %v", made, err)
			}
		})
	}
}

// TestWithoutTheResourceManager: where that API is off, the rest is checked.
func TestWithoutTheResourceManager(t *testing.T) {
	s := newStand(t)
	s.World.Script(cloudsim.Refused("cloudresourcemanager.*", http.StatusForbidden, "accessNotConfigured"))
	if err := s.mustOpen(t).ConfigVerifier(); err != nil {
		t.Error(err)
	}
}

func TestCredentials(t *testing.T) {
	stranger := func(s *stand) { s.cfg.Credentials = config.Secret(s.Stranger()) }
	for name, tc := range map[string]struct {
		prepare func(*stand)
		class   error
		words   []string
	}{
		"good":             {func(*stand) {}, nil, nil},
		"wrong key":        {stranger, provider.ErrUnauthenticated, []string{"invalid_grant", "GCP_CREDENTIALS"}},
		"clock is behind":  {func(s *stand) { s.ClockOff = 2 * time.Hour }, provider.ErrUnauthenticated, []string{"clock is off by"}},
		"ten minutes":      {func(s *stand) { s.ClockOff = -10 * time.Minute }, provider.ErrUnauthenticated, []string{"clock is off by 10m"}},
		"token server off": {func(s *stand) { s.World.Script(cloudsim.Unreachable("oauth2.token").Repeated(-1)) }, provider.ErrUnavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			tc.prepare(s)
			p := s.mustOpen(t)
			_, err := p.GetInstance(t.Context(), "us-central1-a/podvm-x-0123456789ab")
			if tc.class == nil {
				tc.class = provider.ErrNotFound
			}
			if !errors.Is(err, tc.class) {
				t.Errorf("get: %v", err)
			}
			err = p.ConfigVerifier()
			for _, word := range tc.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("verify does not mention %q: %v", word, err)
				}
			}
		})
	}
}

// TestOtherCredentials: those that the cloud's own tools write, and tokens by a URL.
func TestOtherCredentials(t *testing.T) {
	user := `{"type":"authorized_user","client_id":"i","client_secret":"s","refresh_token":"r"}`
	for data, says := range map[string]string{
		user: "",
		`{"type":"authorized_user","client_id":"i","client_secret":"s"}`: "refresh_token",
		`{"type":"impersonated_service_account","service_account_impersonation_url":"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a:generateAccessToken","source_credentials":` + user + `}`:                                "",
		`{"type":"impersonated_service_account","service_account_impersonation_url":"https://x"}`:                                                                                                                                                  "source_credentials",
		`{"type":"impersonated_service_account","service_account_impersonation_url":"https://x","source_credentials":{"type":"external_account","audience":"a","token_url":"https://x","credential_source":{"executable":{"command":"/bin/sh"}}}}`: "programs are not run",
		`{"type":"external_account","audience":"a","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"https://sts.googleapis.com/v1/token","credential_source":{"url":"http://127.0.0.1/token"}}`:                            "",
		`{"type":"external_account","audience":"a","token_url":"https://x","credential_source":{"url":"http://x","file":"/y"}}`:                                                                                                                    "one of credential_source.file",
		`{"type":"gdch_service_account"}`: "gdch_service_account",
	} {
		c := config.Defaults[Config]()
		c.Credentials = config.Secret(data)
		source, err := c.tokenSource(t.Context())
		if says == "" && (err != nil || source == nil) || says != "" && (!errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", data, err, says)
		}
	}
}

// TestDiskKey: the root disk is encrypted with the key that is configured.
func TestDiskKey(t *testing.T) {
	for _, key := range []string{"", "projects/p/locations/l/keyRings/r/cryptoKeys/k"} {
		c := config.Defaults[Config]()
		c.Project, c.Image, c.DiskKey = "my-project", "podvm", key
		disk, err := (&Provider{cfg: c}).rootDisk(&request{}, "us-central1-a", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(disk)
		if err != nil || strings.Contains(string(data), `"diskEncryptionKey":{"kmsKeyName":"`+key+`"}`) != (key != "") {
			t.Errorf("key %q: %v %s", key, err, data)
		}
	}
}

// TestWorkloadIdentity walks the federation: a token of the cluster's in a
// file, exchanged, then perhaps for one of a service account, used; and read
// again once it has been replaced.
func TestWorkloadIdentity(t *testing.T) {
	for _, impersonated := range []bool{false, true} {
		s := newStand(t)
		file := filepath.Join(t.TempDir(), "token")
		account := filepath.Join(t.TempDir(), "account.json")
		write(t, file, sim.ClusterToken(-time.Hour))
		write(t, account, s.ExternalAccount(file, impersonated))
		s.cfg.Credentials, s.cfg.CredentialsFile = "", account
		p := s.mustOpen(t)
		if err := p.ConfigVerifier(); !errors.Is(err, provider.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("with an expired token: %v", err)
		}
		write(t, file, sim.ClusterToken(time.Hour))
		if err := p.ConfigVerifier(); err != nil {
			t.Error(err)
		}
		made := create(t, p, spec(key))
		if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
			t.Error(err)
		}
	}
}

// TestTheVMsOwnIdentity: with nothing configured, and only then, the metadata
// server is asked, in the way that its page says.
func TestTheVMsOwnIdentity(t *testing.T) {
	s := newStand(t)
	server := httptest.NewServer(s.Metadata())
	t.Cleanup(server.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	s.cfg.Credentials = ""
	if err := s.mustOpen(t).ConfigVerifier(); err != nil {
		t.Error(err)
	}
	s.Revoke()
	s.World.ResetCalls()
	s.cfg.Credentials = config.Secret(s.Stranger())
	if err := s.mustOpen(t).ConfigVerifier(); !errors.Is(err, provider.ErrUnauthenticated) || s.World.Calls()["metadata.token"] != 0 {
		t.Errorf("%v, %v", err, s.World.Calls())
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNobodyThere: an endpoint out of reach, and one whose certificate nobody
// trusts.
func TestNobodyThere(t *testing.T) {
	for name, change := range map[string]func(*stand){
		"closed":      func(s *stand) { s.cfg.Endpoint = "https://127.0.0.1:1" },
		"certificate": func(s *stand) { s.cfg.CAFile = "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			change(s)
			made, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, nil, spec(key))
			if !errors.Is(err, provider.ErrUnavailable) || made != nil {
				t.Errorf("%v, %v", made, err)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	long := provider.InstanceTypeSpec{Tags: map[string]string{"note": strings.Repeat("x", 3000)}}
	for name, make := range map[string]func() error{
		"volumes": func() error {
			return p.tryCreate(t, provider.InstanceTypeSpec{Volumes: []provider.CloudVolume{{DiskID: "d"}}})
		},
		"tags":  func() error { return p.tryCreate(t, long) },
		"image": func() error { return p.tryCreate(t, provider.InstanceTypeSpec{Image: "../x"}) },
	} {
		if err := make(); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.wantNothing(t)
}

func (p *Provider) tryCreate(t *testing.T, spec provider.InstanceTypeSpec) error {
	_, err := p.CreateInstance(t.Context(), "web", key, nil, spec)
	return err
}

// TestBytesThatAreNoText arrive as they are.
func TestBytesThatAreNoText(t *testing.T) {
	s := newStand(t)
	text := "#!\x00\xff\xfe\r\n"
	made, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, cloudinit.Raw(text), spec(key))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.UserData(made.ID); got != text || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestOthersAreLeftAlone: VMs that merely carry our labels or names.
func TestOthersAreLeftAlone(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	s.AddForeign(sim.Zones[0], "database", "prod", labelsOf(cloudsim.OwnerTags(key)))
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
	if err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if err := p.DeleteInstance(t.Context(), sim.Zones[0]+"/database"); err != nil {
		t.Error(err)
	}
	if v := s.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

func TestSettingsByFlag(t *testing.T) {
	m := NewManager()
	m.Set(config.Values{
		"gcp-project-id": "p", "zone": "us-central1-a,us-central1-b", "network": "n", "gcp-credentials": `{"type":"x"}`,
		"machine-types": "e2-*", "confidential-type": "TDX", "gcp-machine-prices": "e2-medium=0.03",
	})
	c, err := m.Config()
	if err != nil || !slices.Equal(c.Zones, []string{"us-central1-a", "us-central1-b"}) || c.confidential() != "TDX" || c.Prices["e2-medium"] != "0.03" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := m.NewProvider(); err == nil || strings.Contains(err.Error(), "type\":\"x") {
		t.Errorf("%v", err)
	}
	_, err = New(Config{})
	for _, name := range []string{"GCP_PROJECT_ID", "GCP_ZONE", "GCP_NETWORK", "GCP_MACHINE_TYPE"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("an empty configuration does not mention %s: %v", name, err)
		}
	}
}

func TestACallThatNobodyWaitsFor(t *testing.T) {
	s := newStand(t)
	s.World.Script(cloudsim.Slow("*", time.Second).Repeated(-1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.mustOpen(t).CreateInstance(ctx, "web", key, nil, spec(key))
	if !provider.Retryable(err) || errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
