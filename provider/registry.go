// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"maps"
	"slices"
	"sync"
)

// The table of providers, filled by the init functions of provider packages,
// as in database/sql.
var (
	tableMu sync.RWMutex
	table   = map[string]CloudProvider{}
)

// AddCloudProvider makes a provider known by name. A second provider of the
// same name replaces the first.
func AddCloudProvider(name string, cloud CloudProvider) {
	tableMu.Lock()
	defer tableMu.Unlock()
	table[name] = cloud
}

// Canonical returns the name under which a provider is known, for one that
// installations have in use in its place. Whatever reads CLOUD_PROVIDER, or a
// provider's name from elsewhere, asks here.
func Canonical(name string) string {
	if name == "ibmcloudpowervs" {
		return "ibmcloud-powervs"
	}
	return name
}

// Get returns the provider of that name, or nil.
func Get(name string) CloudProvider {
	tableMu.RLock()
	defer tableMu.RUnlock()
	return table[Canonical(name)]
}

// List returns the names of all known providers, sorted.
func List() []string {
	tableMu.RLock()
	defer tableMu.RUnlock()
	return slices.Sorted(maps.Keys(table))
}
