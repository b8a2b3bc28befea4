// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/internal/controllers"
)

// TestCausesAreToldOnce of each Node, also of one that has the name of another which
// was deleted a moment ago: that is how a kubelet is put right.
func TestCausesAreToldOnce(t *testing.T) {
	api := fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
	said := events.NewFakeRecorder(10)
	w := &Watchdog{
		Client: api, Live: &pages{}, Events: controllers.NewRecorder(said, nil), Interval: time.Minute, Now: func() time.Time { return now },
		Owner: func(context.Context) (Owner, bool, error) { return Owner{Provider: "libvirt"}, true, nil },
	}
	for i, uid := range []types.UID{"first", "second"} {
		n := node("")
		n.UID, n.CreationTimestamp = uid, metav1.NewTime(now.Add(-time.Hour))
		if err := api.Create(t.Context(), n.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := w.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(n)}); err != nil {
				t.Fatal(err)
			}
		}
		if len(said.Events) != i+1 {
			t.Errorf("Node %s: %d Events in all, want %d", uid, len(said.Events), i+1)
		}
		if err := api.Delete(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}
