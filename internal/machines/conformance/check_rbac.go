// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// coreGroup is the one that core may work on in any case.
	coreGroup        = "infrastructure.cluster.x-k8s.io"
	aggregationLabel = "cluster.x-k8s.io/aggregate-to-manager"
)

var aggregated = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

func allows(roles *unstructured.UnstructuredList, group, plural, verb string) bool {
	for _, role := range roles.Items {
		rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
		for _, item := range rules {
			rule, _ := item.(map[string]any)
			if among(rule["apiGroups"], group) && among(rule["resources"], plural) && among(rule["verbs"], verb) {
				return true
			}
		}
	}
	return false
}

// among reports whether a rule's list has a word, or all.
func among(list any, word string) bool {
	words, _ := list.([]any)
	return slices.Contains(words, any(word)) || slices.Contains(words, any("*"))
}
