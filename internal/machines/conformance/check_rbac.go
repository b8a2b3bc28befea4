// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// coreGroup is the one that core may work on in any case.
	coreGroup        = "infrastructure.cluster.x-k8s.io"
	aggregationLabel = "cluster.x-k8s.io/aggregate-to-manager"
)

// aggregated are the verbs that core needs.
var aggregated = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

func checkAggregation(r *run) {
	var foreign []*unstructured.Unstructured
	for _, kind := range r.Objects.kinds() {
		if kind.GroupVersionKind().Group != coreGroup {
			foreign = append(foreign, kind)
		}
	}
	if len(foreign) == 0 {
		r.Skipf("not checked: core may work on the group %s anyway", coreGroup)
	}
	roles := listOf(empty(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"})).(*unstructured.UnstructuredList)
	if err := r.Client.List(r.Context(), roles, client.MatchingLabels{aggregationLabel: "true"}); err != nil {
		r.Fatalf("list ClusterRoles: %v", err)
	}
	for _, kind := range foreign {
		group, plural := kind.GroupVersionKind().Group, text(r.crdOf(kind), "spec", "names", "plural")
		if missing := slices.DeleteFunc(slices.Clone(aggregated), func(verb string) bool { return allows(roles, group, plural, verb) }); len(missing) > 0 {
			r.Errorf("no ClusterRole with the label %s: \"true\" lets core %s %s.%s", aggregationLabel, strings.Join(missing, ", "), plural, group)
		}
	}
}

// allows reports whether one of the roles has a rule for it.
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
