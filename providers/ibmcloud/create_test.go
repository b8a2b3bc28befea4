// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

const key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func create(t *testing.T, p *Provider, spec provider.InstanceTypeSpec) *provider.Instance {
	t.Helper()
	made, err := p.CreateInstance(t.Context(), "web", key, cloudinit.Raw("#cloud-config\n"), spec)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// made returns a field of what an instance was made of, by its name in JSON; a
// number is an index.
func (s *stand) made(t *testing.T, id string, path ...any) any {
	t.Helper()
	text, err := json.Marshal(s.Prototype(id))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	for _, step := range path {
		switch at := step.(type) {
		case string:
			inner, _ := value.(map[string]any)
			value = inner[at]
		case int:
			inner, _ := value.([]any)
			if at >= len(inner) {
				return nil
			}
			value = inner[at]
		}
	}
	return value
}

// TestTheWholeInstanceIsOneRequest looks at what arrives.
func TestTheWholeInstanceIsOneRequest(t *testing.T) {
	s := newStand(t)
	s.cfg.DisableCVM, s.cfg.Profile = false, "bx3dc-2x10"
	s.cfg.SSHKey, s.cfg.SecurityGroups, s.cfg.DedicatedHosts = sim.Key, []string{sim.Group}, sim.Hosts
	s.cfg.SecondarySubnets, s.cfg.SecondaryGroup = sim.Tunnels, sim.Group
	s.cfg.Tags, s.cfg.RootDisk, s.cfg.ResourceGroup = map[string]string{"team": "a b"}, 20, "group"
	p := s.mustOpen(t)
	made := create(t, p, spec(key))
	for _, want := range []struct {
		value any
		path  []any
	}{
		{"tdx", []any{"confidential_compute_mode"}},
		{true, []any{"enable_secure_boot"}},
		{true, []any{"metadata_service", "enabled"}},
		{true, []any{"boot_volume_attachment", "delete_volume_on_instance_delete"}},
		{20.0, []any{"boot_volume_attachment", "volume", "capacity"}},
		{sim.Key, []any{"keys", 0, "id"}},
		{sim.Group, []any{"primary_network_interface", "security_groups", 0, "id"}},
		{sim.Tunnels[0], []any{"network_interfaces", 0, "subnet", "id"}},
		{sim.Hosts[0], []any{"placement_target", "id"}},
		{sim.Image, []any{"image", "id"}},
		{"#cloud-config\n", []any{"user_data"}},
	} {
		if got := s.made(t, made.ID, want.path...); got != want.value {
			t.Errorf("%v is %v, want %v", want.path, got, want.value)
		}
	}
	if len(made.IPs) != 2 {
		t.Errorf("addresses %v, want that of the tunnel too", made.IPs)
	}
	got, err := p.GetInstance(t.Context(), made.ID)
	want := cloudsim.OwnerTags(key)
	want["team"] = "a b"
	if diff := cmp.Diff(want, got.Tags); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got.Zone != sim.Zones[0] || got.Region != sim.Region || got.Type != "bx3dc-2x10" {
		t.Errorf("%+v", got)
	}
}

// TestArchitectures: the image goes with the profile.
func TestArchitectures(t *testing.T) {
	s := newStand(t)
	wanted := spec(key)
	wanted.Arch = "s390x"
	made := create(t, s.mustOpen(t), wanted)
	if s.made(t, made.ID, "image", "id") != sim.S390X || s.made(t, made.ID, "profile", "name") != "bz2-2x8" {
		t.Errorf("made of %v and %v", s.made(t, made.ID, "image"), s.made(t, made.ID, "profile"))
	}
	s.cfg.Images = []string{sim.Image}
	_, err := s.mustOpen(t).CreateInstance(t.Context(), "web", "other", nil, provider.InstanceTypeSpec{Arch: "s390x"})
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-image-id (IBMCLOUD_PODVM_IMAGE_ID)") {
		t.Errorf("without an image for it: %v", err)
	}
}

// TestPlacesWithoutAnImage: a profile that there is no image for takes no place of those
// that a creation tries.
func TestPlacesWithoutAnImage(t *testing.T) {
	s := newStand(t)
	s.cfg.Prices = map[string]string{"bz2-2x8": "0.1", "bx2-2x8": "0.2"}
	s.cfg.Images = []string{sim.Image}
	p := s.mustOpen(t)
	// Each zone is a place.
	for len(p.cfg.Zones) < 2*maxCandidates {
		p.cfg.Zones = append(p.cfg.Zones, sim.Zones...)
	}
	candidates, err := p.plan(t.Context(), newRequest("web", key, provider.InstanceTypeSpec{VCPUs: 2, Memory: 8192}))
	if err != nil || len(candidates) != maxCandidates {
		t.Fatalf("%d candidates, %v", len(candidates), err)
	}
	for _, c := range candidates {
		if c.Type.Arch != "amd64" || c.image != sim.Image {
			t.Errorf("%s in %s with image %s", c.Type.Name, c.Zone, c.image)
		}
	}
}

func TestTheClustersSecurityGroup(t *testing.T) {
	s := newStand(t)
	s.MaxPage = 1
	s.cfg.ClusterID = sim.Cluster
	p := s.mustOpen(t)
	made := create(t, p, spec(key))
	if got := s.made(t, made.ID, "primary_network_interface", "security_groups", 0, "id"); got != "r006-group-kube" {
		t.Errorf("security group %v", got)
	}
	if got, _ := p.GetInstance(t.Context(), made.ID); got.Tags["coco-pod-vm"] != sim.Cluster {
		t.Errorf("tags %v", got.Tags)
	}
	s.cfg.ClusterID = "gone"
	if err := s.mustOpen(t).ConfigVerifier(); err == nil || !strings.Contains(err.Error(), "-cluster-id (IBMCLOUD_CLUSTER_ID)") {
		t.Errorf("%v", err)
	}
}

// TestOtherPlaces: where there is no capacity the next zone, then the next
// profile in the order of price. The failed ones are gone.
func TestOtherPlaces(t *testing.T) {
	s := newStand(t)
	s.cfg.Prices = map[string]string{"bx2-4x16": "0.2", "bx3dc-4x20": "0.1"}
	for _, zone := range sim.Zones[1:] {
		s.World.Script(cloudsim.Fault{Action: sim.Late(zone), Code: "cannot_start_capacity"})
	}
	wanted := spec(key)
	wanted.VCPUs, wanted.Memory, wanted.Arch = 4, 8192, "amd64"
	p := s.mustOpen(t)
	made := create(t, p, wanted)
	got, err := p.GetInstance(t.Context(), made.ID)
	if err != nil || got.Type != "bx2-4x16" || got.Zone != sim.Zones[0] {
		t.Errorf("made %+v, %v", got, err)
	}
	if left, _ := s.leaks(); len(left) != 2 {
		t.Errorf("the books show %v, want an instance and its volume", left)
	}
}

func TestFailures(t *testing.T) {
	for code, class := range map[string]error{
		"cannot_start_capacity": provider.ErrCapacity, "cannot_start_ip_address": provider.ErrCapacity,
		"cannot_start_storage": provider.ErrUnavailable, "something_new": provider.ErrUnknown,
	} {
		s := newStand(t)
		s.cfg.Zones, s.cfg.Subnets = sim.Zones[:1], sim.Subnets[:1]
		s.World.Script(cloudsim.Fault{Action: sim.Late(sim.Zones[0]), Code: code, Times: -1})
		made, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, nil, spec(key))
		if provider.Class(err) != class || made != nil || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v, %v", code, made, err)
		}
		s.wantNothing(t)
	}
}

// TestOrphans: a volume without its instance is listed, and deleted by the id
// it is listed with; an attached one by its instance.
func TestOrphans(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	made := create(t, p, spec(key))
	s.Orphan(made.ID)
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
	if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].ID, byVolume) || list[0].Key != key {
		t.Fatalf("%v, %v", list, err)
	}
	for range 2 {
		if err := p.DeleteInstance(t.Context(), list[0].ID); err != nil {
			t.Error(err)
		}
	}
	s.wantNothing(t)
}

// TestALostReply: the caller gets an id by which what may have been made can
// be deleted.
func TestALostReply(t *testing.T) {
	noLeaks(t)
	s := newStand(t)
	s.World.Script(cloudsim.LostReply("CreateInstance"), cloudsim.Unreachable("CreateInstance").Repeated(-1))
	p := s.mustOpen(t)
	left, err := p.CreateInstance(t.Context(), "web", key, nil, spec(key))
	if !errors.Is(err, provider.ErrUnavailable) || left == nil || !strings.HasPrefix(left.ID, byName) {
		t.Fatalf("%v, %v", left, err)
	}
	if err := p.DeleteInstance(t.Context(), left.ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
	if err := p.DeleteInstance(t.Context(), byName+"database"); err != nil {
		t.Error(err)
	}
}

// TestManyInstances reads them by page.
func TestManyInstances(t *testing.T) {
	s := newStand(t)
	for i := range 3 * few {
		list, err := userTags(map[string]string{provider.TagKey: fmt.Sprint("k", i), provider.TagCluster: "big"})
		if err != nil {
			t.Fatal(err)
		}
		s.AddForeign(names.Hashed("p", "big", fmt.Sprint("k", i)), list)
	}
	s.AddForeign("database", []string{"outrigger-key:x", "outrigger-cluster:big"})
	s.MaxPage = 7
	list, err := s.mustOpen(t).ListInstances(t.Context(), map[string]string{provider.TagCluster: "big"})
	if err != nil || len(list) != 3*few {
		t.Errorf("%d instances, %v", len(list), err)
	}
}

func TestTrustedProfile(t *testing.T) {
	s := newStand(t)
	s.cfg.APIKey, s.cfg.ProfileID = "", sim.ProfileID
	s.cfg.TokenFile = filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(s.cfg.TokenFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("somebody-else")
	p := s.mustOpen(t)
	if err := p.ConfigVerifier(); !errors.Is(err, provider.ErrUnauthenticated) || !strings.Contains(err.Error(), "IBMCLOUD_IAM_PROFILE_ID") {
		t.Errorf("another's token: %v", err)
	}
	write(sim.ClusterToken)
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	create(t, p, spec(key))
}

// TestBadSettings: each is refused before anybody is asked, and named by flag
// and variable.
func TestBadSettings(t *testing.T) {
	s := newStand(t)
	for name, tc := range map[string]struct {
		change func(*Config)
		word   string
	}{
		"no credentials":   {func(c *Config) { c.APIKey = "" }, "-api-key (IBMCLOUD_API_KEY)"},
		"both":             {func(c *Config) { c.ProfileID = "x" }, "IBMCLOUD_API_KEY"},
		"key":              {func(c *Config) { c.APIKey = "hunter2 " }, "IBMCLOUD_API_KEY"},
		"no token file":    {func(c *Config) { c.APIKey, c.ProfileID, c.TokenFile = "", "x", "/nowhere" }, "-cr-token-filename"},
		"profile id":       {func(c *Config) { c.APIKey, c.ProfileID = "", "a b" }, "IBMCLOUD_IAM_PROFILE_ID"},
		"no zone":          {func(c *Config) { c.Zones = nil }, "-zone-name (IBMCLOUD_ZONE)"},
		"zone":             {func(c *Config) { c.Zones = []string{"us-south"} }, "IBMCLOUD_ZONE"},
		"other region":     {func(c *Config) { c.Zones = []string{"us-south-1", "eu-de-1"} }, "another region"},
		"subnets":          {func(c *Config) { c.Subnets = c.Subnets[:2] }, "-primary-subnet-id (IBMCLOUD_VPC_SUBNET_ID)"},
		"subnet":           {func(c *Config) { c.Subnets = []string{"A", "b", "c"} }, "IBMCLOUD_VPC_SUBNET_ID"},
		"tunnel subnets":   {func(c *Config) { c.SecondarySubnets = []string{"a"} }, "-secondary-subnet-id"},
		"no subnet":        {func(c *Config) { c.Subnets = nil }, "-primary-subnet-id (IBMCLOUD_VPC_SUBNET_ID)"},
		"no image":         {func(c *Config) { c.Images = nil }, "-image-id (IBMCLOUD_PODVM_IMAGE_ID)"},
		"image":            {func(c *Config) { c.Images = []string{"A B"} }, "IBMCLOUD_PODVM_IMAGE_ID"},
		"no profile":       {func(c *Config) { c.Profile, c.Profiles = "", nil }, "-profile-name (IBMCLOUD_PODVM_INSTANCE_PROFILE_NAME)"},
		"hosts":            {func(c *Config) { c.DedicatedHosts = []string{"a"} }, "IBMCLOUD_DEDICATED_HOST_IDS"},
		"hosts and groups": {func(c *Config) { c.DedicatedHosts, c.DedicatedHostGroup = sim.Hosts, sim.Hosts }, "IBMCLOUD_DEDICATED_HOST_IDS"},
		"plain http":       {func(c *Config) { c.VPCURL = "http://127.0.0.1" }, "IBMCLOUD_VPC_ENDPOINT"},
		"token service":    {func(c *Config) { c.IAM = "iam" }, "IBMCLOUD_IAM_ENDPOINT"},
		"tag":              {func(c *Config) { c.Tags = map[string]string{"a/b": "c"} }, "-tags (TAGS)"},
		"CA":               {func(c *Config) { c.CAFile = "/nowhere" }, "IBMCLOUD_CA_FILE"},
		"price":            {func(c *Config) { c.Prices = map[string]string{"a": "-1"} }, "IBMCLOUD_PROFILE_PRICES"},
	} {
		cfg := s.cfg
		tc.change(&cfg)
		_, err := New(cfg)
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.word) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(s.World.Calls()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

func TestWhatTheCloudRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		flag   string
		word   string
	}{
		"image":          {func(c *Config) { c.Images = []string{"r006-gone"} }, "-image-id", "r006-gone"},
		"subnet":         {func(c *Config) { c.Subnets = []string{"0717-gone", "0727-gone", "0737-gone"} }, "-primary-subnet-id", "0717-gone"},
		"subnet's zone":  {func(c *Config) { c.Subnets = []string{sim.Subnets[1], sim.Subnets[0], sim.Subnets[2]} }, "-primary-subnet-id", sim.Subnets[1]},
		"VPC":            {func(c *Config) { c.VPC = "r006-gone" }, "-vpc-id", "r006-gone"},
		"key":            {func(c *Config) { c.SSHKey = "r006-gone" }, "-key-id", "r006-gone"},
		"security group": {func(c *Config) { c.SecurityGroups = []string{"r006-gone"} }, "-security-group-ids", "r006-gone"},
		"profile":        {func(c *Config) { c.Profile = "bx9-gone" }, "-profile-name", "bx9-gone"},
		"no TDX":         {func(c *Config) { c.DisableCVM = false }, "-disable-cvm", "bx2-2x8"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			tc.change(&s.cfg)
			p := s.mustOpen(t)
			made, err := p.CreateInstance(t.Context(), "web", key, nil, spec(key))
			if err == nil || made != nil || provider.Retryable(err) {
				t.Errorf("create: %v, %v", made, err)
			}
			s.wantNothing(t)
			if err := p.ConfigVerifier(); err == nil || !strings.Contains(err.Error(), tc.flag) || !strings.Contains(err.Error(), tc.word) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

// TestEachAction is named by the error when it is missing.
func TestEachAction(t *testing.T) {
	for _, name := range role {
		s := newStand(t)
		everything(&s.cfg)
		s.Deny(name)
		p := s.mustOpen(t)
		made, err := p.CreateInstance(t.Context(), "web", key, nil, spec(key))
		if err != nil && (!errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), name)) {
			t.Errorf("create without %s: %v, %v", name, made, err)
		}
		if err := p.ConfigVerifier(); err != nil && (!errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), name)) {
			t.Errorf("verify without %s: %v", name, err)
		}
	}
}

// everything switches on all that needs an action of its own.
func everything(c *Config) {
	c.SSHKey, c.DedicatedHosts, c.ClusterID = sim.Key, sim.Hosts, sim.Cluster
	c.SecondarySubnets, c.SecondaryGroup = sim.Tunnels, sim.Group
}

func TestNobodyThere(t *testing.T) {
	for name, change := range map[string]func(*stand){
		"closed":        func(s *stand) { s.cfg.VPCURL = "https://127.0.0.1:1/v1" },
		"certificate":   func(s *stand) { s.cfg.CAFile = "" },
		"token service": func(s *stand) { s.World.Script(cloudsim.Unreachable("iam.token").Repeated(-1)) },
		"throttled": func(s *stand) {
			s.World.Script(cloudsim.Refused("*", http.StatusTooManyRequests, "rate_limit_exceeded").Repeated(-1))
		},
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
	s := newStand(t)
	s.cfg.APIKey = "wrong"
	if err := s.mustOpen(t).ConfigVerifier(); !errors.Is(err, provider.ErrUnauthenticated) || !strings.Contains(err.Error(), "IBMCLOUD_API_KEY") || strings.Contains(err.Error(), `"wrong"`) {
		t.Errorf("a wrong key: %v", err)
	}
}

func TestQuota(t *testing.T) {
	s := newStand(t)
	s.SetQuota(0)
	if made, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, nil, spec(key)); !errors.Is(err, provider.ErrQuota) || made != nil {
		t.Errorf("%v, %v", made, err)
	}
}

func TestBadRequests(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	for name, spec := range map[string]provider.InstanceTypeSpec{
		"volumes":          {Volumes: []provider.CloudVolume{{DiskID: "d"}}},
		"second interface": {MultiNic: true},
		"image":            {Image: "../x"},
		"tag":              {Tags: map[string]string{"a": "b/c"}},
	} {
		if _, err := p.CreateInstance(t.Context(), "web", key, nil, spec); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.CreateInstance(t.Context(), "web", key, cloudinit.Raw("\xff"), spec(key)); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("bytes: %v", err)
	}
	s.wantNothing(t)
}

// TestAHangingTokenService does not hold up a caller who gives up, nor the end
// of the provider.
func TestAHangingTokenService(t *testing.T) {
	s := newStand(t)
	const hangs = 5 * time.Minute
	s.World.Script(cloudsim.Slow("iam.token", hangs).Repeated(-1))
	p := s.mustOpen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := p.CreateInstance(ctx, "web", key, nil, spec(key))
	if !errors.Is(err, provider.ErrUnavailable) || time.Since(begun) > hangs/2 {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

func TestUserTags(t *testing.T) {
	long := map[string]string{provider.TagKey: "k", provider.TagPod: strings.Repeat("p", 253), "empty": "", provider.TagCreated: "2026-01-02T03:04:05Z"}
	list, err := userTags(long)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range list {
		if len(tag) > maxTag {
			t.Errorf("%d characters: %s", len(tag), tag)
		}
	}
	if diff := cmp.Diff(long, tagsOf(list)); diff != "" {
		t.Error(diff)
	}
	if tags := tagsOf([]string{"env:prod", "a"}); tags != nil {
		t.Errorf("somebody else's tags are %v", tags)
	}
}

func FuzzUserTags(f *testing.F) {
	f.Add("key", "value")
	f.Add(strings.Repeat("k", 64), strings.Repeat("v", 1000))
	f.Fuzz(func(t *testing.T, key, value string) {
		tags := map[string]string{provider.TagKey: "k", key: value}
		if key == provider.TagKey {
			return
		}
		list, err := userTags(tags)
		if err != nil || len(list) > 99 {
			return
		}
		if diff := cmp.Diff(tags, tagsOf(list)); diff != "" {
			t.Error(diff)
		}
	})
}
