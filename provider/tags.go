// SPDX-License-Identifier: Apache-2.0

package provider

import "strings"

// HasTags reports whether tags include all of match: what [Lister] asks of an
// instance.
func HasTags(tags, match map[string]string) bool {
	for key, value := range match {
		if got, ok := tags[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// TagValue replaces what some cloud does not accept in the value of an owner
// tag by '-'.
func TagValue(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.:", r):
			return r
		}
		return '-'
	}, text)
}
