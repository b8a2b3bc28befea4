// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// conditions returns those of an object as far as they can be read.
func conditions(u *unstructured.Unstructured) []metav1.Condition {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var all []metav1.Condition
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		field := func(name string) string { s, _ := m[name].(string); return s }
		c := metav1.Condition{Type: field("type"), Status: metav1.ConditionStatus(field("status")), Reason: field("reason"), Message: field("message")}
		if at, err := time.Parse(time.RFC3339, field("lastTransitionTime")); err == nil {
			c.LastTransitionTime = metav1.NewTime(at)
		}
		all = append(all, c)
	}
	return all
}

func condition(u *unstructured.Unstructured, kind string) *metav1.Condition {
	for _, c := range conditions(u) {
		if c.Type == kind {
			return &c
		}
	}
	return nil
}

// lacksCondition returns what keeps a condition from having that status.
func lacksCondition(u *unstructured.Unstructured, kind string, status metav1.ConditionStatus) string {
	if u == nil {
		return "the object is gone"
	}
	c := condition(u, kind)
	switch {
	case c == nil:
		return "there is no condition " + kind
	case c.Status != status:
		return fmt.Sprintf("condition %s is %s, %s: %s", kind, c.Status, c.Reason, c.Message)
	}
	return ""
}

// wantConditions fails if the conditions are none that an API server takes for its own kinds.
func (r *run) wantConditions(u *unstructured.Unstructured) {
	if wrong := validation.ValidateConditions(conditions(u), field.NewPath("status", "conditions")); len(wrong) > 0 {
		r.Errorf("%v", wrong.ToAggregate())
	}
}

// touched returns what was written into an object except owners and the
// condition Paused.
func touched(before, after *unstructured.Unstructured) string {
	if after == nil {
		return "the object is gone"
	}
	for _, part := range []struct {
		name     string
		was, now any
	}{
		{"finalizers", before.GetFinalizers(), after.GetFinalizers()},
		{"annotations", before.GetAnnotations(), after.GetAnnotations()},
		{"labels", before.GetLabels(), after.GetLabels()},
		{"spec", before.Object["spec"], after.Object["spec"]},
		{"status", statusOf(before), statusOf(after)},
	} {
		if !reflect.DeepEqual(part.was, part.now) {
			return fmt.Sprintf("%s was %v, is %v", part.name, part.was, part.now)
		}
	}
	return ""
}

// statusOf returns the status without what a pause may change: the condition Paused,
// and the observed generation.
func statusOf(u *unstructured.Unstructured) map[string]any {
	kept := map[string]any{}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	for key, value := range status {
		nothing := value == nil || reflect.ValueOf(value).IsZero() // it means the same as a missing field
		if key != "observedGeneration" && key != "conditions" && !nothing {
			kept[key] = value
		}
	}
	for _, c := range conditions(u) {
		if c.Type != clusterv1.PausedCondition {
			kept["condition "+c.Type] = c
		}
	}
	return kept
}
