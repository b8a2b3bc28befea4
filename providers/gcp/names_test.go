// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

func TestEncode(t *testing.T) {
	for _, tc := range []struct{ in, prefix string }{
		{"node-1", "node-1"}, {"", ""}, {"2026-01-02T03:04:05Z", "x2026-01-02t03-04-05z_h"}, {"Node-1", "node-1_h"},
		{strings.Repeat("a", 63), strings.Repeat("a", 63)}, {strings.Repeat("a", 64), "aaaa"},
	} {
		if got := encode(tc.in, labelValue); !strings.HasPrefix(got, tc.prefix) || !labelValue.MatchString(got) {
			t.Errorf("encode(%q) = %q", tc.in, got)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("node-1", "Node-1")
	f.Add("a_h0123456789abcdef", "x")
	f.Add(strings.Repeat("a", 64), strings.Repeat("a", 65))
	f.Add("é", "\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := encode(a, labelValue), encode(b, labelValue)
		if !labelValue.MatchString(x) || !labelKey.MatchString(encode(a, labelKey)) {
			t.Errorf("%q becomes %q and %q", a, x, encode(a, labelKey))
		}
		if a != b && x == y {
			t.Errorf("%q and %q both become %q", a, b, x)
		}
		if encode(x, labelValue) == x && x != a {
			t.Errorf("%q is what %q becomes, and itself too", x, a)
		}
	})
}

func FuzzInstanceName(f *testing.F) {
	f.Add("web", "c", "0123")
	f.Add(strings.Repeat("x", 300), "", "-")
	f.Fuzz(func(t *testing.T, pod, cluster, key string) {
		name := names.Hashed(pod, cluster, key)
		if !resourceName.MatchString(name) || !names.IsHashed(name) {
			t.Errorf("%q", name)
		}
		if at, ok := parseID("us-central1-a/" + name); !ok || at.name != name {
			t.Errorf("%q is not an id", at)
		}
	})
}

func TestPaths(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"podvm", "projects/p/global/images/podvm"},
		{"projects/other/global/images/podvm", "projects/other/global/images/podvm"},
		{"global/images/podvm", "projects/p/global/images/podvm"},
		{"projects/p/global/images/family/podvm", "projects/p/global/images/family/podvm"},
		{"https://www.googleapis.com/compute/v1/projects/p/global/images/podvm", "projects/p/global/images/podvm"},
		{"", ""}, {"a b", ""}, {"projects/p/global/networks/n", ""}, {"projects/p/global/images/a/b", ""}, {"https://elsewhere", ""},
	} {
		got, err := imagePath("p", tc.in)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q, %v", tc.in, got, err)
		}
	}
	got, err := subnetworkOf("r1")("p", "projects/host/regions/r2/subnetworks/s")
	if err != nil || got != "projects/host/regions/r2/subnetworks/s" {
		t.Errorf("%q, %v", got, err)
	}
	if got, _ := subnetworkOf("r1")("p", "s"); got != "projects/p/regions/r1/subnetworks/s" {
		t.Errorf("%q", got)
	}
}

func TestDescriptionsOfOthers(t *testing.T) {
	for _, text := range []string{"", "a database", "{}", `{"a":"b"}`, `["x"]`, `{"outrigger-key":7}`} {
		if tags := tagsOf(text); tags != nil {
			t.Errorf("%q: %v", text, tags)
		}
	}
	text, err := describe(map[string]string{provider.TagKey: "k", "é\"": "\x01"})
	if tags := tagsOf(text); err != nil || tags[provider.TagKey] != "k" || tags["é\""] != "\x01" {
		t.Errorf("%q: %v, %v", text, tags, err)
	}
}
