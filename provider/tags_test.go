// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestHasTags(t *testing.T) {
	tags := map[string]string{"a": "1", "b": ""}
	for _, tc := range []struct {
		match map[string]string
		want  bool
	}{
		{nil, true},
		{map[string]string{"a": "1"}, true},
		{map[string]string{"a": "1", "b": ""}, true},
		{map[string]string{"a": "2"}, false},
		{map[string]string{"a": "1", "c": ""}, false}, // absent is not empty
	} {
		if got := provider.HasTags(tags, tc.match); got != tc.want {
			t.Errorf("HasTags(%v, %v) = %v", tags, tc.match, got)
		}
	}
}

func TestTagValues(t *testing.T) {
	if got := provider.TagValue("kube system/ä:1_x.y"); got != "kube-system--:1_x.y" {
		t.Errorf("TagValue = %q", got)
	}
}
