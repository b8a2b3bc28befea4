// SPDX-License-Identifier: Apache-2.0

package names

import (
	"regexp"
	"strings"
	"testing"
)

var label = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

func FuzzHashed(f *testing.F) {
	f.Add("web", "c", "0123")
	f.Add(strings.Repeat("x", 300), "", "-")
	f.Fuzz(func(t *testing.T, pod, cluster, key string) {
		name := Hashed(pod, cluster, key)
		if !label.MatchString(name) || !IsHashed(name) {
			t.Errorf("%q", name)
		}
		if other := Hashed(pod, cluster, key+"x"); other == name {
			t.Errorf("%q is the name of two keys", name)
		}
	})
}

// TestHashed: names never change, else instances that are there would not be found.
func TestHashed(t *testing.T) {
	if got := Hashed("web", "c", "0123456789"); got != "podvm-web-01234567-aabd8dced9ab" {
		t.Errorf("%q", got)
	}
	for name, ok := range map[string]bool{"podvm-web-0123456789ab": true, "podvm-0123456789ab": true, "podvm-web-0123456789aB": false, "web-0123456789ab": false, "": false, "podvm-" + strings.Repeat("a", 60) + "-0123456789ab": false} {
		if IsHashed(name) != ok {
			t.Errorf("%q", name)
		}
	}
}

func TestIsUUID(t *testing.T) {
	for id, ok := range map[string]bool{
		"0c1f6f58-7a0e-4a86-9a35-0a2ee1d5a7c4": true, "0C1F6F58-7A0E-4A86-9A35-0A2EE1D5A7C4": false, "{0c1f6f58-7a0e-4a86-9a35-0a2ee1d5a7c4}": false,
		"0c1f6f587a0e4a869a350a2ee1d5a7c4": false, "": false,
	} {
		if IsUUID(id) != ok {
			t.Errorf("%q", id)
		}
	}
}

func TestRegionOf(t *testing.T) {
	for zone, want := range map[string]string{"us-central1-a": "us-central1", "us-south-1": "us-south", "zone": "", "": ""} {
		if got := RegionOf(zone); got != want {
			t.Errorf("%q: %q", zone, got)
		}
	}
}
