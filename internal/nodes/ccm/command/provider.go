// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
	"github.com/outrigger/outrigger/internal/nodes/ccm/localbalancer"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/variables"
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
		Name: name, Provider: o.provider, Tags: s.Tags, Labels: s.Labels, LabelsFromTags: s.FromTags, Format: s.Format,
		CallTimeout: s.CallTimeout, ListAge: s.ListAge, GoneAfter: s.GoneAfter, EmptyAfter: s.EmptyAfter, LeftAfter: s.LeftAfter,
		Pass:    s.options.KubeCloudShared.NodeMonitorPeriod.Duration,
		Observe: func(c ccm.Call) { m.observe(name, c) }, Failed: m.failed, Held: m.held,
	}
	if s.Balancer.IsValid() {
		o.local = localbalancer.New(s.Balancer, logger)
		all.Balancers = o.local
	}
	return all
}

// configured opens the provider by its variables, which are in the file of
// --cloud-config or in the environment. None of them is a flag: arguments are
// seen by everybody.
func configured(ctx context.Context, loaded *plugin.Loaded, s *settings, getenv func(string) string) (provider.Provider, error) {
	if _, ok := loaded.Cloud.(config.Configurable); !ok && len(s.file) == 0 {
		return variables.OpenByEnvironment(ctx, loaded.Cloud)
	}
	p, err := variables.Open(ctx, loaded.Cloud, s.file, getenv)
	if errors.Is(err, variables.ErrUnknown) {
		err = fmt.Errorf("--cloud-config: %w", err)
	}
	return p, err
}
