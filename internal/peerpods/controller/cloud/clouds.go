// SPDX-License-Identifier: Apache-2.0

// Package cloud holds the providers that the controller works with: several at
// once, each by its name, configured from settings that may change at any
// time, and each listed at most once per interval however many ask.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// defaultProvider is the key that names the provider of PeerPods without one.
const defaultProvider = "CLOUD_PROVIDER"

// Options are what all providers share. Zero values have defaults.
type Options struct {
	// Owner are the tags of all instances of this cluster.
	Owner map[string]string
	// Load finds a provider; plugin.Load by default.
	Load func(context.Context, plugin.Options) (*plugin.Loaded, error)
	// Getenv is read for the location of plugins only.
	Getenv func(string) string
	Log    *slog.Logger
	// NodeLabels reads the labels of the node that this program runs on, for
	// settings that come from there; none by default.
	NodeLabels func(context.Context) (map[string]string, error)
	// CallTimeout bounds each call to the cloud: 2 minutes.
	CallTimeout time.Duration
	// ListInterval is the least time between the beginnings of two lists of
	// one provider: 1 second.
	ListInterval time.Duration
	// Retry is the pause before a failed load or configuration is retried: 30
	// seconds.
	Retry time.Duration
	// Listed is called, not concurrently for one provider, after each list.
	Listed func(name string)
	// Observe is called after every call; see [Call].
	Observe func(Call)
	Now     func() time.Time
}

// Call is a finished call to a provider.
type Call struct {
	Provider, Operation string
	Took                time.Duration
	Err                 error
}

func (o *Options) complete() {
	if o.Load == nil {
		o.Load = plugin.Load
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.NodeLabels == nil {
		o.NodeLabels = func(context.Context) (map[string]string, error) { return nil, nil }
	}
	o.CallTimeout = cmp.Or(o.CallTimeout, 2*time.Minute)
	o.ListInterval = cmp.Or(o.ListInterval, time.Second)
	o.Retry = cmp.Or(o.Retry, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Listed == nil {
		o.Listed = func(string) {}
	}
	if o.Observe == nil {
		o.Observe = func(Call) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Clouds are the providers by name. Each is loaded when it is first used.
type Clouds struct {
	options Options
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	ready   chan struct{} // closed by the first Configure

	mu       sync.Mutex
	settings Settings
	have     bool
	entries  map[string]*entry
}

// entry is one provider or why there is none.
type entry struct {
	mu    sync.Mutex // held while loading and configuring
	slot  *slot      // when loaded
	cloud *Cloud     // when configured
	err   error
	tried time.Time
}

// New returns an empty set. Close ends what it starts.
func New(o Options) *Clouds {
	o.complete()
	ctx, cancel := context.WithCancel(context.Background())
	return &Clouds{options: o, ctx: ctx, cancel: cancel, ready: make(chan struct{}), entries: map[string]*entry{}}
}

// Configure takes new settings for all providers, those loaded already and
// those to come. It returns which now work with new settings and what is wrong
// with the others.
func (c *Clouds) Configure(settings Settings) (changed []string, wrong error) {
	c.mu.Lock()
	c.settings = settings
	if !c.have {
		c.have = true
		close(c.ready)
	}
	c.mu.Unlock()
	names := c.Names()
	if def := settings.provider(); def != "" && !slices.Contains(names, def) {
		names = append(names, def)
	}
	var errs []error
	for _, name := range names {
		anew, err := c.refresh(name, settings)
		if anew {
			changed = append(changed, name)
		}
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

// Ready returns a channel that is closed when there are settings.
func (c *Clouds) Ready() <-chan struct{} { return c.ready }

// Names returns the providers that were asked for so far.
func (c *Clouds) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.entries))
}

// Default returns the name of the provider of PeerPods that name none.
func (c *Clouds) Default() string { return c.current().provider() }

// Get returns the provider of that name; the empty one is the default.
func (c *Clouds) Get(name string) (*Cloud, error) {
	if name = provider.Canonical(name); name == "" {
		name = c.Default()
	}
	if name == "" {
		return nil, fmt.Errorf("%w: the PeerPod names no provider and %s is not set in %s", provider.ErrInvalidArgument, defaultProvider, c.current().Source)
	}
	e, settings := c.entry(name), c.current()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cloud == nil && c.options.Now().Sub(e.tried) >= c.options.Retry {
		c.open(e, name, settings)
	}
	if e.cloud == nil {
		return nil, e.err
	}
	return e.cloud, nil
}

// Setting returns a key of the ConfigMap or the Secret; empty when it is not there.
func (c *Clouds) Setting(key string) string { return c.current().Get(key) }

func (c *Clouds) current() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings
}

func (c *Clouds) entry(name string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	if e == nil {
		e = &entry{}
		c.entries[name] = e
	}
	return e
}

// refresh loads the provider if need be and gives it the settings.
func (c *Clouds) refresh(name string, settings Settings) (bool, error) {
	e := c.entry(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cloud == nil {
		c.open(e, name, settings)
		return e.cloud != nil, e.err
	}
	return e.cloud.slot.configure(c.ctx, settings, &c.options)
}

// open loads and configures, and leaves the result in e. What is loaded stays:
// a Go plugin cannot be loaded twice.
func (c *Clouds) open(e *entry, name string, settings Settings) {
	e.tried = c.options.Now()
	if e.slot == nil {
		if e.slot, e.err = load(c.ctx, name, settings, &c.options); e.err != nil {
			return
		}
	}
	if _, e.err = e.slot.configure(c.ctx, settings, &c.options); e.err == nil {
		e.cloud = &Cloud{Name: name, slot: e.slot, owner: c}
		e.cloud.lists = &lister{cloud: e.cloud, ended: make(chan struct{})}
	}
}

// Close ends running lists and tears all providers down.
func (c *Clouds) Close() error {
	c.cancel()
	c.work.Wait()
	var errs []error
	for _, name := range c.Names() {
		e := c.entry(name)
		e.mu.Lock()
		if e.slot != nil {
			errs = append(errs, e.slot.close())
		}
		e.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Settings are the keys of the ConfigMap and the Secret that the node's
// adaptor has in its environment. Here they never get there.
type Settings struct {
	keys map[string]string
	// Source says where they come from, for errors.
	Source string
}

// NewSettings joins the keys; those of later maps win.
func NewSettings(source string, keys ...map[string]string) Settings {
	s := Settings{keys: map[string]string{}, Source: source}
	for _, m := range keys {
		maps.Copy(s.keys, m)
	}
	return s
}

// Get returns one key; empty when it is not there.
func (s Settings) Get(key string) string { return s.keys[key] }

// provider returns the provider of PeerPods that name none.
func (s Settings) provider() string { return provider.Canonical(s.keys[defaultProvider]) }

// values returns the settings that the provider's schema has; others belong to other
// programs.
func (s Settings) values(schema config.Schema) config.Values {
	values, get := config.Values{}, upstream.Getenv(schema.Provider, s.Get)
	for _, field := range schema.Fields {
		if text := get(field.Env); field.Env != "" && text != "" {
			values[field.Name] = text
		}
	}
	return values
}

// pluginEnv returns the variables that say where a provider comes from. Only they may
// also come from the process's environment, where the deployment puts them.
func (s Settings) pluginEnv(getenv func(string) string) func(string) string {
	settable := map[string]bool{}
	for _, v := range plugin.Env() {
		settable[v.Name] = true
	}
	return func(name string) string {
		if text := s.keys[name]; settable[name] && text != "" {
			return text
		}
		return getenv(name)
	}
}
