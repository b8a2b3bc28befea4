// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// The variables that say where providers come from.
const (
	// FolderVariable names a folder of plugins.
	FolderVariable = "CLOUD_PROVIDER_PLUGIN_PATH"
	// EnableVariable switches the three below on.
	EnableVariable = "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN"
	// PathVariable names one plugin, or a socket as unix:///path.
	PathVariable = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH"
	// HashVariable is its SHA-256.
	HashVariable = "CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH"
)

// Variable is one line of a help text.
type Variable struct{ Name, Usage string }

// Env returns the variables that [Load] reads.
func Env() []Variable {
	return []Variable{
		{FolderVariable, "folder of plugins: every Go plugin (*.so) in it is loaded, and the program named as the provider is started"},
		{EnableVariable, "load the plugin that the two variables below name"},
		{PathVariable, "file of a Go plugin (PROVIDER.so) or process plugin (PROVIDER), or unix:///path of a provider that runs already"},
		{HashVariable, "SHA-256 of that file in hexadecimal, as sha256sum prints it; a socket needs none"},
	}
}

// enabled reads the switch.
func enabled(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "0", "false", "no", "off":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, fmt.Errorf("%w: %s: %q is neither true nor false", provider.ErrInvalidArgument, EnableVariable, text)
}
