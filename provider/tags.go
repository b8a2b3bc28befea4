// SPDX-License-Identifier: Apache-2.0

package provider

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
