// SPDX-License-Identifier: Apache-2.0

// Package tags puts the tags of an instance together.
package tags

import (
	"maps"
	"slices"
)

// Merge returns a new map with the tags of all; later ones win.
func Merge(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, tags := range all {
		maps.Copy(merged, tags)
	}
	return merged
}

// List returns tags as a request has them, in the order of their keys, so that a request that is repeated is
// the same.
func List[T any](tags map[string]string, pair func(key, value string) T) []T {
	list := make([]T, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pair(key, tags[key]))
	}
	return list
}
