// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

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
	values := config.Values{}
	for _, field := range schema.Fields {
		if text := s.keys[field.Env]; field.Env != "" && text != "" {
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
