// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// slot holds one provider: how it was loaded, and the connection that calls
// currently use.
type slot struct {
	name    string
	loaded  *plugin.Loaded
	manager config.Configurable

	// configuring is held while settings are tried, so that calls go on.
	configuring sync.Mutex
	values      config.Values // of current; guarded by configuring

	mu       sync.Mutex
	current  *connection
	retiring sync.WaitGroup // connections not torn down yet
}

// connection is a provider with its users, which come only while it is the current one.
type connection struct {
	provider provider.Provider
	users    sync.WaitGroup
}

// load finds the provider. It is not configured yet.
func load(ctx context.Context, name string, s Settings, o *Options) (*slot, error) {
	getenv := onlyFor(name, s.provider(), s.pluginEnv(o.Getenv))
	loaded, err := o.Load(ctx, plugin.Options{Name: name, Getenv: getenv, Log: o.Log})
	if err != nil {
		return nil, err
	}
	manager, ok := loaded.Cloud.(config.Configurable)
	if !ok {
		err := fmt.Errorf("%w: provider %s (%s) can only be configured by the process environment, which this program does not use: "+
			"build its manager with provider/config.New, or use it as a process plugin", provider.ErrUnimplemented, name, loaded.Carrier)
		return nil, errors.Join(err, loaded.Close())
	}
	return &slot{name: name, loaded: loaded, manager: manager}, nil
}

// onlyFor hides the external plugin from all providers but the one it
// implements.
func onlyFor(name, def string, getenv func(string) string) func(string) string {
	return func(variable string) string {
		path := getenv(plugin.PathVariable)
		base := strings.TrimSuffix(filepath.Base(path), ".so")
		socket := strings.HasPrefix(path, "unix://")
		if variable == plugin.EnableVariable && (socket && name != def || !socket && !strings.EqualFold(base, name)) {
			return ""
		}
		return getenv(variable)
	}
}

// configure replaces the connection when its settings have changed and the new
// ones work as far as the controller needs them. On an error the old one stays.
func (s *slot) configure(ctx context.Context, settings Settings, o *Options) (changed bool, err error) {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	values := settings.values(s.manager.Schema())
	if s.connected() && maps.Equal(values, s.values) {
		return false, nil
	}
	manager := s.manager.Fresh()
	manager.Set(values)
	p, err := open(ctx, manager, o)
	if err != nil {
		return false, fmt.Errorf("configure provider %s from %s: %w", s.name, settings.Source, err)
	}
	if s.connected() {
		if err := probe(ctx, p, o); err != nil {
			return false, errors.Join(fmt.Errorf("provider %s keeps its former settings since those in %s do not work: %w", s.name, settings.Source, err), provider.Teardown(ctx, p))
		}
	}
	s.values = values
	s.replace(p)
	return true, nil
}

// open makes the provider, with labels of this node for settings that come from there.
func open(ctx context.Context, manager config.Configurable, o *Options) (provider.Provider, error) {
	ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
	defer cancel()
	err := config.FromNode(manager, func([]string) (map[string]string, error) { return o.NodeLabels(ctx) })
	if err != nil {
		return nil, err
	}
	return plugin.Open(ctx, manager)
}

// probe tries the call that the controller depends on: the list. Only an error
// about credentials counts against the new settings.
func probe(ctx context.Context, p provider.Provider, o *Options) error {
	lister, ok := provider.As[provider.Lister](p)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
	defer cancel()
	_, err := lister.ListInstances(ctx, o.Owner)
	if errors.Is(err, provider.ErrUnauthenticated) || errors.Is(err, provider.ErrPermissionDenied) {
		return err
	}
	return nil
}

func (s *slot) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil
}

// replace puts p, or nothing, in the place of the present connection, which is
// torn down when its last call has ended.
func (s *slot) replace(p provider.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.current; old != nil {
		s.retiring.Go(func() {
			old.users.Wait()
			provider.Teardown(context.Background(), old.provider) // its error is about what nobody uses any more
		})
	}
	s.current = nil
	if p != nil {
		s.current = &connection{provider: p}
	}
}

// close waits for the end of running calls.
func (s *slot) close() error {
	s.replace(nil)
	s.retiring.Wait()
	return s.loaded.Close()
}

// use returns the present provider and what to call when done with it.
func (s *slot) use() (provider.Provider, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.current
	if c == nil {
		return nil, nil, fmt.Errorf("provider %s: %w: it is not configured", s.name, provider.ErrUnavailable)
	}
	c.users.Add(1)
	return c.provider, c.users.Done, nil
}
