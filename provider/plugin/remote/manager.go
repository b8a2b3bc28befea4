// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"os"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Manager is the provider.CloudProvider of a provider behind a link.
type Manager struct {
	*config.Binder
	link   *Link
	about  wire.About
	getenv func(string) string
}

var (
	_ config.Configurable    = (*Manager)(nil)
	_ provider.ContextOpener = (*Manager)(nil)
)

// NewManager returns a manager with nothing set. A provider that somebody else
// has configured has no settings here. A nil getenv is os.Getenv.
func NewManager(link *Link, about wire.About, getenv func(string) string) *Manager {
	if getenv == nil {
		getenv = os.Getenv
	}
	if about.Configured {
		about.Schema.Fields = nil
	}
	return &Manager{config.NewBinder(about.Schema), link, about, getenv}
}

// LoadEnv fills from the environment what no flag has set.
func (m *Manager) LoadEnv() { m.LoadFrom(m.getenv) }

// NewProvider sends the settings over the link.
func (m *Manager) NewProvider() (provider.Provider, error) {
	return m.NewProviderContext(context.Background())
}

// NewProviderContext implements provider.ContextOpener, within [ConfigureTimeout].
func (m *Manager) NewProviderContext(ctx context.Context) (provider.Provider, error) {
	values, err := m.Values()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ConfigureTimeout)
	defer cancel()
	name, capabilities, err := m.link.open(ctx, values)
	if err != nil {
		return nil, err
	}
	return wire.NewProvider(m.link, name, capabilities, wire.PluginName(m.link.title)), nil
}

// Fresh returns another manager of the same plugin with nothing set.
func (m *Manager) Fresh() config.Configurable { return NewManager(m.link, m.about, m.getenv) }
