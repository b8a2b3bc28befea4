// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/serve"
)

// In the package main of a provider this is its main function, and all it says
// is serve.Main("mycloud", config.New("mycloud", Open)). Here it is run as
// `mycloud --help`.
func Example() {
	serve.Run(serve.Options{
		Name:   "mycloud",
		Cloud:  config.New("mycloud", Open),
		Args:   []string{"--help"},
		Stdout: os.Stdout,
	})
	// Output:
	// mycloud is a cloud provider that cloud-api-adaptor starts when CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH names this file; run by hand it needs one of the modes below.
	//
	// Usage: mycloud MODE [SETTINGS]
	//
	// Modes:
	//   --listen unix:///PATH   serve on a socket, configured by the flags and variables below
	//   --check                 prove the provider against the contract; it makes instances and deletes them
	//   --run REGEXP            with --check: only the checks whose names match
	//   --junit FILE            with --check: write a JUnit report too
	//   --import LOCATION       make an image of the cloud from a file, or from an object where the cloud's own store has it; its id goes to standard output
	//   --import-name NAME      with --import: what the cloud shall call the image
	//   --import-format FORMAT  with --import: qcow2, raw, vhd, gcp or ova, when the location's ending does not tell
	//   --import-arch ARCH      with --import: amd64 (the default), arm64 or s390x
	//   --schema                write the configuration schema as JSON
	//   --version               write the version
	//   --help                  write this text
	//
	// Settings:
	//   -mycloud-endpoint TEXT [MYCLOUD_ENDPOINT]
	//       URL of the API (default https://api.mycloud.example)
	//   [MYCLOUD_TOKEN]
	//       API token; required; secret
}

// Config is everything that can be set.
type Config struct {
	Endpoint string        `flag:"mycloud-endpoint" env:"MYCLOUD_ENDPOINT" default:"https://api.mycloud.example" usage:"URL of the API"`
	Token    config.Secret `env:"MYCLOUD_TOKEN" required:"true" usage:"API token"`
}

// Open connects to the cloud. Settings are valid already.
func Open(c Config) (provider.Provider, error) {
	return &Cloud{api: API{c.Endpoint, c.Token.Reveal()}}, nil
}

// Cloud makes instances in mycloud.
type Cloud struct{ api API }

func (c *Cloud) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	userData, err := cloudConfig.Generate()
	if err != nil {
		return nil, fmt.Errorf("generate user-data: %w", err)
	}
	name := provider.InstanceName(podName, sandboxID)
	id, addr, err := c.api.Create(ctx, sandboxID, name, userData, spec.Tags)
	if err != nil {
		return nil, fmt.Errorf("create server %s: %w: %w", name, provider.ErrUnavailable, err)
	}
	return &provider.Instance{ID: id, Name: name, IPs: []netip.Addr{addr}}, nil
}

func (c *Cloud) DeleteInstance(ctx context.Context, instanceID string) error {
	if instanceID == "" {
		return fmt.Errorf("%w: the instance id is empty", provider.ErrInvalidArgument)
	}
	return c.api.Delete(ctx, instanceID)
}

func (c *Cloud) ConfigVerifier() error { return nil }
func (c *Cloud) Teardown() error       { return nil }

// API is the client of the imaginary cloud.
type API struct{ endpoint, token string }

func (API) Create(ctx context.Context, token, name, userData string, tags map[string]string) (string, netip.Addr, error) {
	return token, netip.MustParseAddr("192.0.2.1"), ctx.Err()
}

func (API) Delete(ctx context.Context, id string) error { return ctx.Err() }
