// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
)

// TestConflictsAreTold: one that never ends is tried later and later, and is a failure
// when it has lasted.
func TestConflictsAreTold(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := ccmv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := ccmOf("main", 0, 1)
	c.Finalizers = []string{finalizer}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "d", nil)
	api := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(c).WithStatusSubresource(c).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return conflict
		},
	}).Build()
	now := time.Unix(1e9, 0)
	r := &ccmReconciler{
		operator: &operator{client: api, apis: apis{ccm: true}, o: &Options{DegradedAfter: time.Minute}}, now: func() time.Time { return now },
		log: slog.New(slog.DiscardHandler), memories: map[string]*memory{},
	}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)}
	for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if again, err := r.Reconcile(t.Context(), request); err != nil || again.RequeueAfter != want {
			t.Errorf("again in %s, %v, want %s", again.RequeueAfter, err, want)
		}
	}
	now = now.Add(time.Minute)
	if _, err := r.Reconcile(t.Context(), request); err == nil {
		t.Error("it has lasted, and is not an error")
	}
	if err := api.Get(t.Context(), request.NamespacedName, c); err != nil {
		t.Fatal(err)
	}
	if d := apimeta.FindStatusCondition(c.Status.Conditions, ccmv1alpha1.DegradedCondition); d == nil || d.Status != "True" || !strings.Contains(d.Message, "deployments") {
		t.Errorf("conditions %+v", c.Status.Conditions)
	}
}
