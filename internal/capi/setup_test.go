// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// TestOwnChanges: what the controller writes into a status does not end the
// pause after an error. All else is news.
func TestOwnChanges(t *testing.T) {
	machine := func() *infrav1.OutriggerMachine {
		m := &infrav1.OutriggerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "2", Generation: 1, Finalizers: []string{"f"}}}
		setFalse(m, ProvisionedCondition, "Unavailable", "request 2")
		return m
	}
	for name, c := range map[string]struct {
		change func(was, is *infrav1.OutriggerMachine)
		want   bool
	}{
		"another message":        {func(was, _ *infrav1.OutriggerMachine) { setFalse(was, ProvisionedCondition, "Other", "request 1") }, false},
		"one more condition":     {func(_, is *infrav1.OutriggerMachine) { setTrue(is, HealthyCondition, ReasonHealthy) }, false},
		"provisioned":            {func(_, is *infrav1.OutriggerMachine) { is.Status.Initialization = yes() }, false},
		"a look without change":  {func(was, _ *infrav1.OutriggerMachine) { was.ResourceVersion = "2" }, true},
		"a status that was lost": {func(_, is *infrav1.OutriggerMachine) { is.Status.Conditions = nil }, true},
		"provisioned no more":    {func(was, _ *infrav1.OutriggerMachine) { was.Status.Initialization = yes() }, true},
		"another spec":           {func(_, is *infrav1.OutriggerMachine) { is.Generation = 2 }, true},
		"a label":                {func(_, is *infrav1.OutriggerMachine) { is.Labels = map[string]string{"a": "b"} }, true},
		"an annotation":          {func(_, is *infrav1.OutriggerMachine) { is.Annotations = map[string]string{"a": "b"} }, true},
		"an owner":               {func(_, is *infrav1.OutriggerMachine) { is.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }, true},
		"no finalizer":           {func(_, is *infrav1.OutriggerMachine) { is.Finalizers = nil }, true},
		"a deletion":             {func(_, is *infrav1.OutriggerMachine) { is.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
	} {
		was, is := machine(), machine()
		was.ResourceVersion = "1"
		c.change(was, is)
		if got := ownChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
