// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
)

// minorVersion is a version of Kubernetes without its patch: 36 is 1.36.
type minorVersion int

// String returns a text such as 1.36.
func (m minorVersion) String() string { return "1." + strconv.Itoa(int(m)) }

var like = regexp.MustCompile(`^v?1\.([0-9]{1,3})(?:\+|$|[.-].*)`)

// parseMinor reads versions such as v1.36.3, 1.36 and v1.35.0-eks-1.
func parseMinor(version string) (minorVersion, error) {
	parts := like.FindStringSubmatch(strings.TrimSpace(version))
	if parts == nil {
		return 0, fmt.Errorf("version %q: want one such as v1.36.3", version)
	}
	n, err := strconv.Atoi(parts[1])
	return minorVersion(n), err
}

// parseRange reads 1.36 or 1.34-1.36.
func parseRange(text string) (from, to minorVersion, err error) {
	first, last, several := strings.Cut(text, "-")
	if !several {
		last = first
	}
	if from, err = parseMinor(first); err == nil {
		to, err = parseMinor(last)
	}
	if err == nil && to < from {
		err = errors.New("ends before it begins")
	}
	if err != nil {
		err = fmt.Errorf("range %q: %w", text, err)
	}
	return from, to, err
}

// chooseRule returns the first rule that fits the lowest version of the API servers.
// All rules are looked at, so that one that is wrong is found before its time.
func chooseRule(rules []ccmv1alpha1.VersionRule, lowest minorVersion) (*ccmv1alpha1.VersionRule, error) {
	var chosen *ccmv1alpha1.VersionRule
	var known []string
	for i := range rules {
		from, to, err := parseRange(rules[i].Kubernetes)
		if err != nil {
			return nil, fmt.Errorf("versions[%d].kubernetes: %w", i, err)
		}
		for m := from; m <= to; m++ {
			if skew := skewOf(rules[i].Version, m); skew != "" {
				return nil, fmt.Errorf("versions[%d]: %s", i, skew)
			}
		}
		known = append(known, rules[i].Kubernetes)
		if chosen == nil && from <= lowest && lowest <= to {
			chosen = &rules[i]
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("versions: none is for Kubernetes %s (there are %s): add one", lowest, strings.Join(known, ", "))
	}
	return chosen, nil
}

// skewOf returns why a manager's version does not fit an API server's; empty when it does, or
// when it does not count as Kubernetes does. It must not be newer than any API server, and at
// most one minor version older (https://kubernetes.io/releases/version-skew-policy/), so it is
// upgraded after the last of them.
func skewOf(manager string, apiserver minorVersion) string {
	m, err := parseMinor(manager)
	if manager == "" || err != nil {
		return ""
	}
	switch {
	case m > apiserver:
		return fmt.Sprintf("cloud controller manager %s is newer than Kubernetes %s: upgrade the API servers first", manager, apiserver)
	case m < apiserver-1:
		return fmt.Sprintf("cloud controller manager %s is more than one minor version older than Kubernetes %s: it is not supported there", manager, apiserver)
	}
	return ""
}
