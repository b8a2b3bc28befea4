// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

func TestBadSettings(t *testing.T) {
	good := config.Defaults[Config]()
	good.Image = "podvm"
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"host":         {func(c *Config) { c.Host = "laptop" }, "-docker-host (DOCKER_HOST)"},
		"host by SSH":  {func(c *Config) { c.Host = "ssh://laptop" }, "-docker-host (DOCKER_HOST)"},
		"API version":  {func(c *Config) { c.APIVersion = "new" }, "-docker-api-version (DOCKER_API_VERSION)"},
		"no image":     {func(c *Config) { c.Image = "" }, "-docker-podvm-image (DOCKER_PODVM_IMAGE)"},
		"no network":   {func(c *Config) { c.Network = "" }, "-docker-network-name (DOCKER_NETWORK_NAME)"},
		"host network": {func(c *Config) { c.Network = "host" }, "-docker-network-name (DOCKER_NETWORK_NAME)"},
		"CPUs":         {func(c *Config) { c.CPUs = -1 }, "-docker-cpus (DOCKER_CPUS)"},
		"memory":       {func(c *Config) { c.Memory = -1 }, "-docker-memory (DOCKER_MEMORY)"},
		"no TLS files": {func(c *Config) { c.Host, c.TLSVerify = "tcp://laptop:2376", true }, "-docker-cert-path (DOCKER_CERT_PATH)"},
		"TLS files":    {func(c *Config) { c.Host, c.TLSVerify, c.CertPath = "tcp://laptop:2376", true, "/nonexistent" }, "-docker-cert-path (DOCKER_CERT_PATH)"},
		"TLS":          {func(c *Config) { c.TLSVerify, c.CertPath = true, "/nonexistent" }, "-docker-tls-verify (DOCKER_TLS_VERIFY)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			row.change(&c)
			if _, err := New(c); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want an invalid argument that names %q", err, row.want)
			}
		})
	}
}

func TestWrongRequests(t *testing.T) {
	c := config.Defaults[Config]()
	c.Image, c.Host = "podvm", "unix:///nonexistent.sock"
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Teardown()
	for name, spec := range map[string]provider.InstanceTypeSpec{
		"type": {InstanceType: "large"}, "GPUs": {GPUs: 1}, "interface": {MultiNic: true}, "volumes": {Volumes: []provider.CloudVolume{{DiskID: "d"}}},
	} {
		if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, spec); !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("no engine: %v", err)
	}
}

// TestVerifyNamesWhatIsAway: someone who has started no engine reads what to do.
func TestVerifyNamesWhatIsAway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"unix:///nonexistent.sock": "unix:///nonexistent.sock: unavailable: there is no such socket: start the Docker engine",
		"unix://" + file:           "nobody listens there",
		"tcp://127.0.0.1:1":        "nobody listens there",
	} {
		c := config.Defaults[Config]()
		c.Host = host
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Teardown()
		err = p.ConfigVerifier()
		if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "-docker-host (DOCKER_HOST) "+host) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
}
