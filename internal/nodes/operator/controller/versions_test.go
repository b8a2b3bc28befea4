// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
)

func TestMinorVersions(t *testing.T) {
	for text, want := range map[string]minorVersion{
		"v1.36.3": 36, "1.36": 36, "v1.35.0-eks-1": 35, "v1.9.0": 9, "v1.36.0+k3s1": 36, "v1.36": 36,
	} {
		if got, err := parseMinor(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "2.1.0", "v1.x", "v1.", "latest", "1.36x"} {
		if got, err := parseMinor(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestChooseRule(t *testing.T) {
	rules := []ccmv1alpha1.VersionRule{
		{Kubernetes: "1.34", Version: "v1.34.1", Images: map[string]string{"k": "34"}},
		{Kubernetes: "1.35-1.36", Version: "v1.35.0", Images: map[string]string{"k": "35"}},
	}
	for minor, want := range map[minorVersion]string{34: "34", 35: "35", 36: "35"} {
		if got, err := chooseRule(rules, minor); err != nil || got.Images["k"] != want {
			t.Errorf("%s: %+v, %v", minor, got, err)
		}
	}
	for want, bad := range map[string][]ccmv1alpha1.VersionRule{
		"none is for Kubernetes 1.36 (there are 1.34)":                {{Kubernetes: "1.34"}},
		`versions[0].kubernetes: range "1.36-1.34": ends`:             {{Kubernetes: "1.36-1.34"}},
		`versions[1].kubernetes: range "x"`:                           {{Kubernetes: "1.36"}, {Kubernetes: "x"}},
		"versions[0]: cloud controller manager v1.36.0 is newer than": {{Kubernetes: "1.35-1.36", Version: "v1.36.0"}},
		"more than one minor version older than Kubernetes 1.36":      {{Kubernetes: "1.36", Version: "v1.34.9"}},
	} {
		if got, err := chooseRule(bad, 36); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %+v, %v; want %q", bad, got, err, want)
		}
	}
}

func TestSkewOfOtherCounts(t *testing.T) {
	for _, manager := range []string{"", "v30.0.0", "2024-11", "latest"} {
		if skew := skewOf(manager, 36); skew != "" {
			t.Errorf("%q: %s", manager, skew)
		}
	}
}
