// SPDX-License-Identifier: Apache-2.0

package tags

import (
	"maps"
	"slices"
	"testing"
)

func TestMerge(t *testing.T) {
	a, b := map[string]string{"a": "1", "b": "1"}, map[string]string{"b": "2"}
	merged := Merge(a, nil, b)
	if !maps.Equal(merged, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("%v", merged)
	}
	merged["c"] = "3"
	if len(a) != 2 || len(b) != 1 || Merge() == nil || Merge(nil) == nil {
		t.Error("the arguments have changed, or what was merged of nothing is nil")
	}
}

func TestList(t *testing.T) {
	got := List(map[string]string{"b": "2", "a": "1", "c": "3"}, func(key, value string) string { return key + value })
	if !slices.Equal(got, []string{"a1", "b2", "c3"}) {
		t.Errorf("%q", got)
	}
}
