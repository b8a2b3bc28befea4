// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
)

// TestChanged: another version of the same wakes nobody, anything else does.
func TestChanged(t *testing.T) {
	was := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}, Data: map[string]string{"k": "v"}}
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   bool
	}{
		"nothing":     {func(*corev1.ConfigMap) {}, false},
		"its version": {func(c *corev1.ConfigMap) { c.ResourceVersion = "2" }, false},
		"managedFields": {func(c *corev1.ConfigMap) {
			c.ResourceVersion, c.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		}, false},
		"data":       {func(c *corev1.ConfigMap) { c.Data = nil }, true},
		"a label":    {func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }, true},
		"a deletion": {func(c *corev1.ConfigMap) { now := metav1.Now(); c.DeletionTimestamp = &now }, true},
	} {
		is := was.DeepCopy()
		c.change(is)
		if got := changed().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.want {
			t.Errorf("%s wakes: %t, want %t", name, got, c.want)
		}
	}
	if !changed().Create(event.CreateEvent{Object: was}) || !changed().Delete(event.DeleteEvent{Object: was}) {
		t.Error("what comes or goes wakes nobody")
	}
}

// TestRegressionOwnStatusWakesNobody: a status that is another in each pass, such as the
// version of whichever API server answered, made the next pass at once, for ever.
func TestRegressionOwnStatusWakesNobody(t *testing.T) {
	was := ccmOf("main", 0, 1)
	for name, c := range map[string]struct {
		change func(*ccmv1alpha1.CloudControllerManager)
		want   bool
	}{
		"its version":  {func(c *ccmv1alpha1.CloudControllerManager) { c.ResourceVersion = "2" }, false},
		"its status":   {func(c *ccmv1alpha1.CloudControllerManager) { c.Status.KubernetesVersion = "v1.36.1" }, false},
		"its spec":     {func(c *ccmv1alpha1.CloudControllerManager) { c.Spec.Provider = "other" }, true},
		"a finalizer":  {func(c *ccmv1alpha1.CloudControllerManager) { c.Finalizers = []string{"f"} }, true},
		"its deletion": {func(c *ccmv1alpha1.CloudControllerManager) { now := metav1.Now(); c.DeletionTimestamp = &now }, true},
	} {
		is := was.DeepCopy()
		c.change(is)
		if got := userChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.want {
			t.Errorf("%s wakes: %t, want %t", name, got, c.want)
		}
	}
	if !userChanges().Create(event.CreateEvent{Object: was}) || !userChanges().Delete(event.DeleteEvent{Object: was}) {
		t.Error("what comes or goes wakes nobody")
	}
}

// TestRegressionWatchErrorsAreTold: why a watch failed was lost, and what passes by
// itself is not a reason.
func TestRegressionWatchErrorsAreTold(t *testing.T) {
	slow := errors.New("it took too long")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "", errors.New("no"))
	for _, c := range []struct {
		watch, end error
		want       bool
	}{{forbidden, slow, true}, {forbidden, nil, false}, {io.ErrUnexpectedEOF, slow, false}} {
		u := &unseen{}
		u.note(t.Context(), toolscache.NewReflector(nil, &corev1.Pod{}, nil, 0), c.watch)
		err := u.because(c.end)
		if !errors.Is(err, c.end) || errors.Is(err, c.watch) != c.want {
			t.Errorf("%v and %v: %v", c.watch, c.end, err)
		}
	}
}
