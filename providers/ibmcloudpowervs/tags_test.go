// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
)

// asKept is what the tagging service makes of tags.
func asKept(t *testing.T, list []string) []string {
	t.Helper()
	var kept []string
	for _, tag := range list {
		if len(tag) > maxTag || tag == "" {
			t.Errorf("tag %q has %d characters", tag, len(tag))
		}
		kept = append(kept, strings.ToLower(tag))
	}
	rand.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
	return slices.Compact(kept)
}

func TestTagsThereAndBack(t *testing.T) {
	tags := map[string]string{
		provider.TagCluster: "prod", provider.TagKey: "AbC_-.9", provider.TagCreated: "2026-01-02T03:04:05Z",
		provider.TagPod: strings.Repeat("long-name.", 25), "Team": "Ärzte & Söhne", "empty": "", "": "no name", "a:b": "c:d",
		"plain": "value:with:colons",
	}
	list := encodeTags(tags)
	if diff := cmp.Diff(tags, decodeTags(asKept(t, list))); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(list, "outrigger-cluster:prod") {
		t.Errorf("a pair that fits is not readable in %q", list)
	}
}

func TestTagsOfSomebody(t *testing.T) {
	got := decodeTags([]string{"team", "env:prod", encodedPrefix + "-000000000000-0-1:aaaa", encodedPrefix + "-x"})
	if diff := cmp.Diff(map[string]string{"env": "prod"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	for _, pod := range []string{"", "nginx", "Ünïcode pod!", strings.Repeat("x", 300), "-"} {
		name := nameOf(pod, "key")
		if len(name) > maxName || !strings.HasPrefix(name, namePrefix[:5]) || !strings.HasSuffix(name, suffixOf("key")) {
			t.Errorf("pod %q has the name %q", pod, name)
		}
	}
	if nameOf("p", "key") == nameOf("p", "Key") {
		t.Error("two keys share a name")
	}
}

func TestRegions(t *testing.T) {
	for zone, region := range map[string]string{
		"dal10": "us-south", "us-south": "us-south", "wdc06": "us-east", "eu-de-1": "eu-de", "lon04": "lon", "syd05": "syd", "new01": "new",
	} {
		if got := regionOf(zone); got != region {
			t.Errorf("zone %s is in %s, want %s", zone, got, region)
		}
	}
}

func FuzzTags(f *testing.F) {
	f.Add("key", "value")
	f.Add("Ä", strings.Repeat("b", 400))
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.Contains(name, "\x00") {
			t.Skip("a name with NUL is not a name")
		}
		tags := map[string]string{name: value}
		if diff := cmp.Diff(tags, decodeTags(asKept(t, encodeTags(tags)))); diff != "" {
			t.Error(diff)
		}
	})
}
