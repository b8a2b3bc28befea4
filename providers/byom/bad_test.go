// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/byom"
)

func TestParsePool(t *testing.T) {
	got, err := parsePool([]string{"10.0.0.9", "10.0.0.1-10.0.0.3", "fd00::1 - fd00::2"}, 100)
	want := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "host", "10.0.0.1-", "10.0.0.3-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0-10.0.1.0", "10.0.0.1/24"} {
		if _, err := parsePool([]string{text}, 100); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-vm-pool-ips (VM_POOL_IPS)") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := parsePool([]string{"10.0.0.1-10.0.0.4", "10.0.0.2"}, 100); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a double: %v", err)
	}
}

func TestBadSettings(t *testing.T) {
	f := start(t, 1)
	other := sim.NewKeys(t)
	if _, err := New(f.cfg); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, row := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no pool":         {func(c *Config) { c.PoolIPs = nil }, "-vm-pool-ips (VM_POOL_IPS)"},
		"pool":            {func(c *Config) { c.PoolIPs = []string{"x"} }, "-vm-pool-ips (VM_POOL_IPS)"},
		"range limit":     {func(c *Config) { c.MaxRange = 0 }, "-max-range-ips (MAX_RANGE_IPS)"},
		"no user":         {func(c *Config) { c.User = "" }, "-ssh-username (SSH_USERNAME)"},
		"key absent":      {func(c *Config) { c.PrivateKey = "/nonexistent" }, "-ssh-priv-key (SSH_PRIV_KEY_PATH)"},
		"no key":          {func(c *Config) { c.PrivateKey = f.Kubeconfig }, "-ssh-priv-key (SSH_PRIV_KEY_PATH)"},
		"other key":       {func(c *Config) { c.PublicKey = other.File("id.pub") }, "-ssh-pub-key (SSH_PUB_KEY_PATH)"},
		"time-out":        {func(c *Config) { c.Timeout = 0 }, "-ssh-timeout (SSH_TIMEOUT)"},
		"port":            {func(c *Config) { c.Port = 70000 }, "-byom-ssh-port (BYOM_SSH_PORT)"},
		"allowlist":       {func(c *Config) { c.AllowlistDir = "/nonexistent" }, "-ssh-host-key-allowlist-dir (SSH_HOST_KEY_ALLOWLIST_DIR)"},
		"allowlist empty": {func(c *Config) { c.AllowlistDir = folder }, "-ssh-host-key-allowlist-dir (SSH_HOST_KEY_ALLOWLIST_DIR)"},
		"allowlist file":  {func(c *Config) { c.AllowlistDir = filepath.Dir(f.Kubeconfig) }, "-ssh-host-key-allowlist-dir (SSH_HOST_KEY_ALLOWLIST_DIR)"},
		"no namespace":    {func(c *Config) { c.Namespace = "" }, "-pool-namespace (POOL_NAMESPACE)"},
		"no name":         {func(c *Config) { c.ConfigMap = "" }, "-pool-configmap-name (POOL_CONFIGMAP_NAME)"},
		"kubeconfig":      {func(c *Config) { c.Kubeconfig = "/nonexistent" }, "-byom-kubeconfig (KUBECONFIG)"},
		"no cluster":      {func(c *Config) { c.Kubeconfig = "" }, "-byom-kubeconfig (KUBECONFIG)"},
		"arch":            {func(c *Config) { c.Arch = "vax" }, "-byom-arch (BYOM_ARCH)"},
		"wait":            {func(c *Config) { c.ResetWait = -1 }, "-byom-reset-wait (BYOM_RESET_WAIT)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := f.cfg
			row.change(&c)
			if _, err := New(c); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want an invalid argument that names %q", err, row.want)
			}
		})
	}
}

func TestBadWorld(t *testing.T) {
	script := func(faults ...cloudsim.Fault) func(*testing.T, *fixture) {
		return func(_ *testing.T, f *fixture) { f.World.Script(faults...) }
	}
	for name, row := range map[string]struct {
		world func(*testing.T, *fixture)
		class error
		want  string
	}{
		"not logged in": {script(cloudsim.Refused("configmaps:*", 401, "Unauthorized").Repeated(-1)), provider.ErrUnauthenticated, "POOL_CONFIGMAP_NAME"},
		"no permission": {script(cloudsim.Refused("configmaps:*", 403, "Forbidden").Repeated(-1)), provider.ErrPermissionDenied, "POOL_CONFIGMAP_NAME"},
		"API down":      {script(cloudsim.Unreachable("configmaps:*").Repeated(-1)), provider.ErrUnavailable, "POOL_CONFIGMAP_NAME"},
		"other user":    {func(_ *testing.T, f *fixture) { f.cfg.User = "nobody" }, provider.ErrUnauthenticated, "-ssh-username (SSH_USERNAME)"},
		"other key": {func(t *testing.T, f *fixture) {
			k := sim.NewKeys(t)
			f.cfg.PrivateKey, f.cfg.PublicKey = k.File("id"), k.File("id.pub")
		}, provider.ErrUnauthenticated, "-ssh-priv-key (SSH_PRIV_KEY_PATH)"},
		"host key": {func(t *testing.T, f *fixture) { f.cfg.AllowlistDir = sim.NewKeys(t).File("allowed") }, provider.ErrUnauthenticated, "-ssh-host-key-allowlist-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, 1)
			row.world(t, f)
			p := f.mustOpen(t)
			verifyErr := p.ConfigVerifier()
			_, createErr := create(t.Context(), p, "key")
			for _, err := range []error{verifyErr, createErr} {
				if !errors.Is(err, row.class) || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%v, want %v that names %s", err, row.class, row.want)
				}
			}
			f.wantNothing(t)
		})
	}
}

func TestVerifierAsksEveryMachine(t *testing.T) {
	f := start(t, 3)
	f.Machine(1).SetDown(true)
	f.Machine(3).SetDown(true)
	err := f.mustOpen(t).ConfigVerifier()
	if err == nil || !strings.Contains(err.Error(), sim.Addr(1).String()) || !strings.Contains(err.Error(), sim.Addr(3).String()) || strings.Contains(err.Error(), sim.Addr(2).String()+":") {
		t.Errorf("%v", err)
	}
}

func TestWrongRequests(t *testing.T) {
	f := start(t, 1)
	p := f.mustOpen(t, func(c *Config) { c.CPUs, c.Memory = 4, 8192 })
	for name, spec := range map[string]provider.InstanceTypeSpec{
		"type": {InstanceType: "large"}, "image": {Image: "other"}, "GPUs": {GPUs: 1}, "arch": {Arch: "arm64"}, "interface": {MultiNic: true},
		"volumes": {Volumes: []provider.CloudVolume{{DiskID: "d"}}}, "CPUs": {VCPUs: 5}, "memory": {Memory: 8193},
	} {
		if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, spec); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw(strings.Repeat("x", cloudinit.MaxSize+1)), provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("user-data: %v", err)
	}
	if calls := f.World.Calls(); len(calls) > 0 {
		t.Errorf("somebody was called: %v", calls)
	}
}

func TestStateThatDoesNotParse(t *testing.T) {
	if _, err := parseState(`{"x": 1}`); err == nil || !strings.Contains(err.Error(), "ConfigMap") {
		t.Errorf("%v", err)
	}
}
