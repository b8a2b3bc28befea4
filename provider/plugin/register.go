// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
)

// table is a copy of the table of providers.
type table map[string]provider.CloudProvider

func snapshot() table {
	t := table{}
	for _, name := range provider.List() {
		t[name] = provider.Get(name)
	}
	return t
}

// since returns what was registered, or registered again, after before.
func (t table) since(before table) table {
	added := table{}
	for name, cloud := range t {
		if old, was := before[name]; !was || !same(old, cloud) {
			added[name] = cloud
		}
	}
	return added
}

func (t table) names() []string { return slices.Sorted(maps.Keys(t)) }

// same compares managers, which need not be comparable.
func same(a, b provider.CloudProvider) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Type() != vb.Type() {
		return false
	}
	if va.Comparable() {
		return va.Equal(vb)
	}
	return reflect.DeepEqual(a, b)
}

// inits remembers what each Go plugin registered. A Go plugin stays in its
// process for ever and its init functions run once, so a second [Load] of the
// same file must find what the first one saw.
var inits = struct {
	sync.Mutex
	bySum map[pluginfile.Sum]table
}{bySum: map[pluginfile.Sum]table{}}

// registered runs open, which runs the init functions of a plugin, and returns
// the providers that they registered.
func registered(sum pluginfile.Sum, open func() error) (table, error) {
	inits.Lock()
	defer inits.Unlock()
	if known, ok := inits.bySum[sum]; ok {
		return known, nil
	}
	before := snapshot()
	if err := open(); err != nil {
		return nil, err
	}
	added := snapshot().since(before)
	inits.bySum[sum] = added
	return added, nil
}
