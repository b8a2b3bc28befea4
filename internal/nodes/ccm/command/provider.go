// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

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

// meters are our own; the library adds those of its controllers.
type meters struct {
	took     *metrics.HistogramVec
	calls    *metrics.CounterVec
	failures *metrics.CounterVec
	holds    *metrics.CounterVec
}

// registerMetrics returns the process's meters: /metrics has only one registry.
var registerMetrics = sync.OnceValue(func() *meters {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	m := &meters{
		took: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "outrigger_ccm_provider_call_seconds", Help: "Duration of calls to the provider.",
			Buckets: metrics.ExponentialBuckets(0.005, 4, 9), StabilityLevel: metrics.ALPHA,
		}, []string{"provider", "operation"}),
		calls:    counter("outrigger_ccm_provider_calls_total", "Calls to the provider by result: ok, or the class of the error.", "provider", "operation", "result"),
		failures: counter("outrigger_ccm_node_initialization_failures_total", "Attempts to initialize a Node that failed, by the reason of the Node's Event.", "reason"),
		holds:    counter("outrigger_ccm_node_deletions_held_total", "Looks that did not find a Node's instance and were not proof that it is gone, by reason.", "reason"),
	}
	legacyregistry.MustRegister(m.took, m.calls, m.failures, m.holds)
	return m
})

func (m *meters) observe(name string, c ccm.Call) {
	result := "ok"
	if c.Err != nil {
		result = strings.ReplaceAll(provider.Class(c.Err).Error(), " ", "_")
	}
	m.took.WithLabelValues(name, c.Operation).Observe(c.Took.Seconds())
	m.calls.WithLabelValues(name, c.Operation, result).Inc()
}

func (m *meters) failed(reason string) { m.failures.WithLabelValues(reason).Inc() }
func (m *meters) held(reason string)   { m.holds.WithLabelValues(reason).Inc() }
