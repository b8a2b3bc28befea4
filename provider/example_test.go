// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// In a provider's package this is its init function.
func Example() {
	provider.AddCloudProvider("mycloud", &Manager{})
}

// Manager holds the configuration of mycloud.
type Manager struct{ endpoint, token string }

func (m *Manager) ParseCmd(flags *flag.FlagSet) {
	flags.StringVar(&m.endpoint, "mycloud-endpoint", "https://api.mycloud.example", "URL of the API")
}

func (m *Manager) LoadEnv() { m.token = os.Getenv("MYCLOUD_TOKEN") } // a secret: never a flag

func (m *Manager) NewProvider() (provider.Provider, error) {
	if m.token == "" {
		return nil, fmt.Errorf("%w: MYCLOUD_TOKEN is not set", provider.ErrInvalidArgument)
	}
	return &Cloud{api: newClient(m.endpoint, m.token)}, nil
}

// Cloud makes instances in mycloud.
type Cloud struct{ api client }

func (c *Cloud) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	if sandboxID == "" {
		return nil, fmt.Errorf("%w: the sandbox id is empty", provider.ErrInvalidArgument)
	}
	types, err := c.api.types(ctx)
	if err != nil {
		return nil, classify("list instance types", err)
	}
	if spec.Zone != "" { // what cannot be done is refused by name
		return nil, fmt.Errorf("%w: zone %q: this cloud has no zones", provider.ErrInvalidArgument, spec.Zone)
	}
	kind, err := instancetypes.Select(spec, types, "small")
	if err != nil {
		return nil, err
	}
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, fmt.Errorf("generate user-data: %w", err)
	}
	tags := map[string]string{provider.TagKey: sandboxID} // by which lists know it
	maps.Copy(tags, spec.Tags)
	image := cmp.Or(spec.Image, "podvm")
	made, err := c.api.create(ctx, server{ // the API gives one server per token
		Token: sandboxID, Name: provider.InstanceName(podName, sandboxID), Type: kind,
		Image: image, UserData: userData, Tags: tags,
	})
	if err != nil {
		return nil, classify(fmt.Sprintf("create server of type %s from image %s", kind, image), err)
	}
	return made.instance(), nil
}

func (c *Cloud) DeleteInstance(ctx context.Context, instanceID string) error {
	if instanceID == "" {
		return fmt.Errorf("%w: the instance id is empty", provider.ErrInvalidArgument)
	}
	err := classify("delete server "+instanceID, c.api.delete(ctx, instanceID))
	if errors.Is(err, provider.ErrNotFound) {
		return nil // gone is what was asked for
	}
	return err
}

func (c *Cloud) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if len(match) == 0 {
		return nil, fmt.Errorf("%w: no tags to match", provider.ErrInvalidArgument)
	}
	servers, err := c.api.list(ctx, match)
	var list []provider.Instance
	for _, s := range servers {
		list = append(list, *s.instance())
	}
	return list, classify("list servers", err)
}

func (c *Cloud) ConfigVerifier() error {
	_, err := c.api.types(context.Background())
	return classify("list instance types", err)
}

func (c *Cloud) Teardown() error { return nil }

// classify gives an error of the API its class and says what was tried.
func classify(what string, err error) error {
	var status statusError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status): // no reply: the request may have been carried out
		return fmt.Errorf("%s: %w: %w", what, provider.ErrUnavailable, err)
	}
	class, known := map[int]error{
		http.StatusBadRequest:      provider.ErrInvalidArgument,
		http.StatusUnauthorized:    provider.ErrUnauthenticated,
		http.StatusForbidden:       provider.ErrPermissionDenied,
		http.StatusNotFound:        provider.ErrNotFound,
		http.StatusTooManyRequests: provider.ErrUnavailable,
	}[int(status)]
	if !known {
		class = provider.ErrUnknown
	}
	return fmt.Errorf("%s: %w: %w", what, class, err)
}
