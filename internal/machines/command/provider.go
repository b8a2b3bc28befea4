// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/variables"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin"
)

// opener loads and configures the providers of the Outrigger kinds.
type opener struct {
	*settings
	getenv func(string) string
	// secrets reads the Secrets with settings; it must not be a cache.
	secrets client.Reader
	logger  *slog.Logger
}

// cloud is one provider, in all failure domains.
type cloud struct {
	name string
	// source is the flag, and the file or Secret, that its settings are from.
	source string
	// settings has the values that apply to no particular failure domain, by
	// variable.
	settings func(string) string
	loaded   *plugin.Loaded
	any      provider.Provider
	domains  map[string]provider.Provider
}

// openAll opens the default provider and all others. closeAll is to be called also after
// an error.
func (o opener) openAll(ctx context.Context, options outrigger.Options) (clouds *outrigger.Clouds, closeAll func() error, err error) {
	var opened []*cloud
	var backends []*outrigger.Backend
	closeAll = func() error {
		var errs []error
		for _, b := range backends { // first what uses them
			b.Close()
		}
		for _, c := range opened {
			errs = append(errs, c.close())
		}
		return errors.Join(errs...)
	}
	for _, name := range o.names() {
		c, err := o.open(ctx, name)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, c)
		b, err := outrigger.New(c.options(o.settings, options))
		if err != nil {
			return nil, closeAll, err
		}
		backends = append(backends, b)
	}
	return outrigger.NewClouds(o.Provider, backends...), closeAll, nil
}

// open opens the default provider, whose settings are of the environment, or one of
// --more-providers.
func (o opener) open(ctx context.Context, name string) (*cloud, error) {
	c := &cloud{name: name, source: "--provider (CLOUD_PROVIDER)", settings: o.getenv, domains: map[string]provider.Provider{}}
	var own map[string]string
	var err error
	getenv := o.getenv
	if _, more := o.More[name]; more {
		if own, err = o.own(ctx, c); err != nil {
			return nil, err
		}
		c.settings, getenv = func(variable string) string { return own[variable] }, apart(own, getenv)
	}
	if c.loaded, err = plugin.Load(ctx, plugin.Options{Name: name, Getenv: getenv, Log: o.logger}); err != nil {
		return nil, fmt.Errorf("%s: %w", c.source, err)
	}
	if err := errors.Join(c.configure(ctx, own), c.configureDomains(ctx, o.settings)); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// own reads the settings of one of --more-providers: of its file, or of its Secret. An
// error never shows a value.
func (o opener) own(ctx context.Context, c *cloud) (own map[string]string, err error) {
	if file := o.More[c.name]; file != "" {
		c.source = fmt.Sprintf("--more-providers %s=%s", c.name, file)
		if own, err = variables.Read(file); err != nil {
			err = program.Usagef("%s: %w", c.source, err)
		}
		return own, err
	}
	key := client.ObjectKey{Namespace: o.getenv("POD_NAMESPACE"), Name: "provider-" + c.name}
	c.source = fmt.Sprintf("--more-providers %s", c.name)
	if key.Namespace == "" {
		return nil, program.Usagef("%s: its settings are those of Secret %s in the namespace of the manager, which POD_NAMESPACE does not say: set that, or write %s=FILE", c.source, key.Name, c.name)
	}
	c.source += fmt.Sprintf(" (Secret %s)", key)
	var secret corev1.Secret
	if err := o.secrets.Get(ctx, key, &secret); err != nil {
		return nil, fmt.Errorf("%s: read its settings: %w: make the Secret with a key for each variable, or write %s=FILE", c.source, err, c.name)
	}
	own = map[string]string{}
	for variable, value := range secret.Data {
		own[variable] = string(value)
	}
	return own, nil
}

// apart returns the variables of one of --more-providers: its settings, and of the
// process those that are not provider's own.
func apart(own map[string]string, getenv func(string) string) func(string) string {
	return func(name string) string {
		if value, ok := own[name]; ok {
			return value
		}
		switch name {
		case plugin.EnableVariable, plugin.PathVariable, plugin.HashVariable: // they name one provider
			return ""
		}
		return getenv(name)
	}
}

func (c *cloud) configure(ctx context.Context, own map[string]string) (err error) {
	if own != nil {
		c.any, err = variables.Open(ctx, c.loaded.Cloud, own, c.settings, plugin.FolderVariable, plugin.EnableVariable, plugin.PathVariable, plugin.HashVariable)
	} else {
		c.any, err = variables.OpenByEnvironment(ctx, c.loaded.Cloud)
	}
	if err != nil {
		return fmt.Errorf("%s: provider %s: %w", c.source, c.name, err)
	}
	return nil
}

func (c *cloud) configureDomains(ctx context.Context, s *settings) error {
	for name, file := range s.domains[c.name] {
		own, err := variables.Read(file)
		if err != nil {
			err = program.UsageError(err)
		} else {
			c.domains[name], err = variables.Open(ctx, c.loaded.Cloud, own, c.settings)
		}
		if err != nil {
			delete(c.domains, name)
			return fmt.Errorf("--failure-domain %s%s=%s: %w", s.domainPrefix(c.name), name, file, err)
		}
	}
	return nil
}

func (c *cloud) close() error {
	var errs []error
	if c.any != nil {
		errs = append(errs, provider.Teardown(context.Background(), c.any))
	}
	for _, p := range c.domains {
		errs = append(errs, provider.Teardown(context.Background(), p))
	}
	return errors.Join(append(errs, c.loaded.Close())...)
}

func (c *cloud) options(s *settings, o outrigger.Options) outrigger.Options {
	o.Name, o.Provider, o.Domains, o.DomainPrefix = c.name, c.any, c.domains, s.domainPrefix(c.name)
	o.Interval, o.CreateTimeout, o.Settle = s.Interval, s.CreateTimeout, s.Settle
	return o
}

// meters are the manager's own metrics; controller-runtime adds those of
// reconciliations, queues and requests to the API server.
type meters struct {
	calls  *prometheus.HistogramVec
	errors *prometheus.CounterVec
}

func newMeters(registry prometheus.Registerer) *meters {
	return &meters{
		calls: registered(registry, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "capi_manager_provider_call_seconds", Help: "Duration of calls to the provider of Outrigger kinds.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
		}, []string{"provider", "operation"})),
		errors: registered(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capi_manager_provider_errors_total", Help: "Failed calls to the provider of Outrigger kinds, by class of error.",
		}, []string{"provider", "operation", "class"})),
	}
}

// registered returns the collector, or the one that another manager in this
// process has registered.
func registered[C prometheus.Collector](registry prometheus.Registerer, c C) C {
	err := registry.Register(c)
	if there := (prometheus.AlreadyRegisteredError{}); errors.As(err, &there) {
		return there.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // two metrics of one name: seen by every test
	}
	return c
}

func (m *meters) observe(c outrigger.Call) {
	m.calls.WithLabelValues(c.Provider, c.Operation).Observe(c.Took.Seconds())
	if c.Err != nil {
		class := strings.ReplaceAll(provider.Class(c.Err).Error(), " ", "_")
		m.errors.WithLabelValues(c.Provider, c.Operation, class).Inc()
	}
}
