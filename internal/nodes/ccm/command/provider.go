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
	"net/netip"
	"slices"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
	"github.com/outrigger/outrigger/internal/nodes/ccm/localbalancer"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// opened is the provider with the cloud that is made of it.
type opened struct {
	loaded   *plugin.Loaded
	provider provider.Provider
	cloud    *ccm.Cloud
	local    *localbalancer.Balancer // nil unless asked for
}

func (o *opened) close() error {
	if o.local != nil {
		o.local.Close()
	}
	var err error
	if o.provider != nil {
		err = provider.Teardown(context.Background(), o.provider)
	}
	return errors.Join(err, o.loaded.Close())
}

// openCloud loads and configures the provider.
func openCloud(ctx context.Context, s *settings, getenv func(string) string, logger *slog.Logger) (*opened, error) {
	asked := provider.Canonical(s.options.KubeCloudShared.CloudProvider.Name)
	loaded, err := plugin.Load(ctx, plugin.Options{Name: asked, Getenv: getenv, Log: logger})
	if errors.Is(err, plugin.ErrUnsupported) {
		return nil, program.Usagef("unknown cloud provider %q: %w", asked, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--cloud-provider %s: %w", asked, err)
	}
	o := &opened{loaded: loaded}
	if o.provider, err = configured(ctx, loaded, s, getenv); err == nil {
		o.cloud, err = ccm.New(o.options(s, asked, logger))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("provider %s: %w", asked, err), o.close())
	}
	return o, nil
}

func (o *opened) options(s *settings, name string, logger *slog.Logger) ccm.Options {
	m := registerMetrics()
	all := ccm.Options{
		Name: name, Provider: o.provider, Tags: s.tags, Labels: s.labels, LabelsFromTags: s.fromTags, Format: ccm.Format(s.format),
		CallTimeout: s.callTimeout, ListAge: s.listAge, GoneAfter: s.goneAfter, EmptyAfter: s.emptyAfter, LeftAfter: s.leftAfter,
		Pass:    s.options.KubeCloudShared.NodeMonitorPeriod.Duration,
		Observe: func(c ccm.Call) { m.observe(name, c) }, Failed: m.failed, Held: m.held,
	}
	if addr, err := netip.ParseAddr(s.balancer); err == nil { // else it is empty
		o.local = localbalancer.New(addr, logger)
		all.Balancers = o.local
	}
	return all
}

// configured opens the provider by its variables, which are in the file of
// --cloud-config or in the environment. None of them is a flag: arguments are
// seen by everybody.
func configured(ctx context.Context, loaded *plugin.Loaded, s *settings, getenv func(string) string) (provider.Provider, error) {
	if configurable, ok := loaded.Cloud.(config.Configurable); ok {
		values, err := valuesOf(configurable.Schema(), s.file, getenv)
		if err != nil {
			return nil, err
		}
		fresh := configurable.Fresh()
		fresh.Set(values)
		return plugin.Open(ctx, fresh)
	}
	if len(s.file) > 0 {
		return nil, program.Usagef("--cloud-config: the provider can only be configured by the environment: build its manager with provider/config.New, or leave %q to it", slices.Sorted(maps.Keys(s.file)))
	}
	f := flag.NewFlagSet(loaded.Name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	loaded.Cloud.ParseCmd(f) // some managers need it before the environment
	loaded.Cloud.LoadEnv()
	return plugin.Open(ctx, loaded.Cloud)
}

func valuesOf(schema config.Schema, file map[string]string, getenv func(string) string) (config.Values, error) {
	values, rest := config.Values{}, maps.Clone(file)
	for _, field := range schema.Fields {
		if field.Env == "" {
			continue
		}
		text, ok := rest[field.Env]
		if !ok {
			text = getenv(field.Env)
		}
		if delete(rest, field.Env); text != "" {
			values[field.Name] = text
		}
	}
	if len(rest) > 0 {
		return nil, program.Usagef("--cloud-config: unknown variables %q; those of the provider are on its page of the reference", slices.Sorted(maps.Keys(rest)))
	}
	return values, nil
}
