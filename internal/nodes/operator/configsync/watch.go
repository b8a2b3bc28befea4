// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// cacheOptions keep what is watched to what is read.
func (o *Options) cacheOptions() cache.Options {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
				o.Namespace:      {},
				userNamespace:    {},
				managedNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", managedName)},
			}},
			&openshift.Infrastructure{}:  named(openshift.ClusterName),
			&openshift.Network{}:         named(openshift.ClusterName),
			&openshift.Proxy{}:           named(openshift.ClusterName),
			&openshift.FeatureGate{}:     named(openshift.ClusterName),
			&openshift.ClusterOperator{}: named(status.Name),
		},
	}
}

// watched is what wakes a controller.
type watched struct {
	sync    status.Sync
	objects []client.Object
	// ours are ConfigMaps that always matter; user answers the name of the one
	// among those of administrators that does.
	ours []types.NamespacedName
	user func(context.Context) (string, error)
}

// add adds a controller to the manager.
func (w watched) add(mgr manager.Manager, name string, resync, retry time.Duration, r reconcile.Reconciler) error {
	several := true // managers in one process, in tests
	b := builder.ControllerManagedBy(mgr).Named(name).
		WithOptions(ctrl.Options{
			SkipNameValidation: &several,
			RateLimiter:        daemon.RateLimiter(retry),
		}).
		WatchesRawSource(daemon.Always(resync, "")).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(w.configMap)).
		Watches(&openshift.ClusterOperator{}, handler.EnqueueRequestsFromMapFunc(daemon.Everything), builder.WithPredicates(w.unsaid()))
	for _, o := range w.objects {
		b.Watches(o, handler.EnqueueRequestsFromMapFunc(daemon.Everything))
	}
	return b.Complete(r)
}

// configMap lets through those that matter: an unrelated one must not make a
// controller say anything.
func (w watched) configMap(ctx context.Context, o client.Object) []reconcile.Request {
	if name := client.ObjectKeyFromObject(o); name.Namespace == userNamespace {
		user, err := w.user(ctx)
		if err == nil && user != name.Name {
			return nil
		}
	} else if !slices.Contains(w.ours, name) {
		return nil
	}
	return daemon.Everything(ctx, o)
}

// unsaid lets through a ClusterOperator that lost what the controller says.
func (w watched) unsaid() predicate.Predicate {
	lacks := predicate.NewPredicateFuncs(func(o client.Object) bool {
		c, ok := o.(*openshift.ClusterOperator)
		return ok && !w.sync.Said(c)
	})
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return true }, GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return predicate.Or(lacks, gone)
}
