// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/outrigger/outrigger/internal/capi/outrigger"
	"github.com/outrigger/outrigger/internal/variables"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// cloud is the provider of the Outrigger kinds, in all failure domains.
type cloud struct {
	loaded  *plugin.Loaded
	any     provider.Provider
	domains map[string]provider.Provider
}

// openCloud loads and configures it.
func openCloud(ctx context.Context, s *settings, getenv func(string) string, logger *slog.Logger) (*cloud, error) {
	loaded, err := plugin.Load(ctx, plugin.Options{Name: s.provider, Getenv: getenv, Log: logger})
	if err != nil {
		return nil, fmt.Errorf("--provider (CLOUD_PROVIDER): %w", err)
	}
	c := &cloud{loaded: loaded, domains: map[string]provider.Provider{}}
	if err := c.configure(s, getenv); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cloud) configure(s *settings, getenv func(string) string) (err error) {
	f := flag.NewFlagSet(c.loaded.Name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	c.loaded.Cloud.ParseCmd(f) // some managers need it before the environment
	c.loaded.Cloud.LoadEnv()
	if c.any, err = c.loaded.Cloud.NewProvider(); err != nil {
		return fmt.Errorf("provider %s: %w", s.provider, err)
	}
	for name, file := range s.domains {
		if c.domains[name], err = c.domain(name, file, getenv); err != nil {
			delete(c.domains, name)
			return fmt.Errorf("--failure-domain %s=%s: %w", name, file, err)
		}
	}
	return nil
}

// domain makes the provider of a failure domain: what the file does not say is
// as in the environment.
func (c *cloud) domain(name, file string, getenv func(string) string) (provider.Provider, error) {
	own, err := variables.Read(file)
	if err != nil {
		return nil, usageError{err}
	}
	configurable, ok := c.loaded.Cloud.(config.Configurable)
	if !ok {
		return nil, usageError{fmt.Errorf("provider %s can only be configured once, by the environment: build its manager with provider/config.New", c.loaded.Name)}
	}
	values := config.Values{}
	for _, field := range configurable.Schema().Fields {
		text, ok := own[field.Env]
		if !ok && field.Env != "" {
			text = getenv(field.Env)
		}
		if delete(own, field.Env); text != "" {
			values[field.Name] = text
		}
	}
	if len(own) > 0 {
		return nil, usageError{fmt.Errorf("provider %s has no variables %q", c.loaded.Name, slices.Sorted(maps.Keys(own)))}
	}
	fresh := configurable.Fresh()
	fresh.Set(values)
	return fresh.NewProvider()
}

func (c *cloud) close() error {
	var errs []error
	if c.any != nil {
		errs = append(errs, c.any.Teardown())
	}
	for _, p := range c.domains {
		errs = append(errs, p.Teardown())
	}
	return errors.Join(append(errs, c.loaded.Close())...)
}

func (c *cloud) options(s *settings, o outrigger.Options) outrigger.Options {
	o.Name, o.Provider, o.Domains = s.provider, c.any, c.domains
	o.Interval, o.CreateTimeout, o.Settle = s.interval, s.createTimeout, s.settle
	return o
}
