// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"os"

	"github.com/outrigger/outrigger/provider"
)

// Configurable is a [provider.CloudProvider] that publishes its schema. Those
// that [New] makes are, and so are those of plugins.
type Configurable interface {
	provider.CloudProvider
	// Schema returns the settings.
	Schema() Schema
	// Set sets all settings at once, in place of flags and environment.
	// NewProvider reports what is wrong with them.
	Set(Values)
	// Fresh returns another manager of the same provider with nothing set, so
	// that one process can have several configurations of it.
	Fresh() Configurable
}

// Manager is a [Configurable] with a configuration struct.
type Manager[C any] struct {
	*Binder
	open  func(context.Context, C) (provider.Provider, error)
	relax func(*C)
	// noImport says that there are no imports.
	noImport bool
}

// New returns the manager of a provider whose settings are the tagged fields
// of C. It panics when the tags are wrong, as template.Must does: a test of
// the author's sees it. Providers are opened with open.
func New[C any](name string, open func(C) (provider.Provider, error)) *Manager[C] {
	return NewContext(name, func(_ context.Context, c C) (provider.Provider, error) { return open(c) })
}

// NewContext is [New] with a function that can be stopped while it connects. The
// provider must not need its context.
func NewContext[C any](name string, open func(context.Context, C) (provider.Provider, error)) *Manager[C] {
	schema := Schema{Provider: name}
	for _, m := range mustMembers(new(C)) {
		schema.Fields = append(schema.Fields, m.Field)
	}
	return &Manager[C]{Binder: NewBinder(schema), open: open}
}

// opened opens a provider. An error comes with no provider: a nil pointer of the
// author's type is an interface that is not nil.
func (m *Manager[C]) opened(ctx context.Context, c C) (provider.Provider, error) {
	p, err := m.open(ctx, c)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ForImport makes imports of images need fewer settings than instances do:
// whoever imports the first image has no image's id yet. relax fills in those
// that an import does not use and that are not set. It returns m.
func (m *Manager[C]) ForImport(relax func(*C)) *Manager[C] {
	m.relax = relax
	return m
}

// NoImport declares that the provider imports no images, so that an import fails before
// it requires settings. It returns m.
func (m *Manager[C]) NoImport() *Manager[C] {
	m.noImport = true
	return m
}

// LoadEnv fills from the environment what no flag has set.
func (m *Manager[C]) LoadEnv() { m.LoadFrom(os.Getenv) }

// NewProvider decodes the settings and opens the provider.
func (m *Manager[C]) NewProvider() (provider.Provider, error) {
	return m.NewProviderContext(context.Background())
}

// NewProviderContext implements [provider.ContextOpener].
func (m *Manager[C]) NewProviderContext(ctx context.Context) (provider.Provider, error) {
	c, err := m.Config()
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, c)
}

// NewImporter opens the provider for the import of an image. The provider may
// make no instances. The error is [provider.ErrUnimplemented] after [Manager.NoImport].
func (m *Manager[C]) NewImporter(ctx context.Context) (provider.Provider, error) {
	if m.noImport {
		return nil, provider.ErrUnimplemented
	}
	if m.relax == nil {
		return m.NewProviderContext(ctx)
	}
	c, err := m.config(false)
	if err != nil {
		return nil, err
	}
	m.relax(&c)
	if err := missing(&c); err != nil {
		return nil, err
	}
	return m.opened(ctx, c)
}

// Config returns the settings as a struct, defaults included.
func (m *Manager[C]) Config() (C, error) { return m.config(true) }

// config returns the settings; with complete, missing required settings are an error.
func (m *Manager[C]) config(complete bool) (C, error) {
	var c C
	values, err := m.values(complete)
	if err == nil {
		err = decode(&c, values)
	}
	return c, err
}

// Fresh returns another manager with nothing set.
func (m *Manager[C]) Fresh() Configurable {
	fresh := *m
	fresh.Binder = NewBinder(m.schema)
	return &fresh
}

// Defaults returns C with every default filled in. It panics when the tags
// are wrong, as [New] does.
func Defaults[C any]() C {
	var c C
	if err := decode(&c, nil); err != nil {
		panic(err)
	}
	return c
}
