// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// inventoryName is that of the ConfigMap that lists what was applied on OpenShift.
const inventoryName = "ccm-operator-inventory"

func (o *Options) deployer(mgr manager.Manager, inventory string) *Deployer {
	return &Deployer{Applier: apply.Applier{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(operatorName), Manager: operatorName,
		Inventory: client.ObjectKey{Namespace: o.Namespace, Name: inventory},
	}}
}

// limits returns options that retry soon enough to report a failure when it has lasted.
func limits(w *failure.Window) ctrl.Options {
	return ctrl.Options{RateLimiter: daemon.RateLimiter(w.Retry())}
}

func (o *Options) addOpenShift(mgr manager.Manager, apis apis, in *inputs, nodeNotes *notes, log *slog.Logger) error {
	warnOfRelease(log, o.Release)
	window := &failure.Window{Threshold: o.DegradedAfter}
	in.client, in.live, in.namespace, in.release, in.imagesFile = mgr.GetClient(), mgr.GetAPIReader(), o.Namespace, o.Release, o.ImagesFile
	in.gatesAfter, in.now, in.log = o.GatesAfter, time.Now, log
	r := &openShift{
		client: mgr.GetClient(), inputs: in, bundles: o.Bundles, deployer: o.deployer(mgr, inventoryName), window: window,
		status: status.NewOperator(mgr.GetClient(), mgr.GetAPIReader(), o.Release, mgr.GetEventRecorder(operatorName)),
		pause:  o.Requeue, namespace: o.Namespace, operator: o.OperatorNamespace, notes: nodeNotes, now: time.Now, log: log,
	}
	// Names of a platform's objects are OpenShift's: what has one and is there
	// already is its former operator's.
	r.deployer.Adopts = func(client.Object) bool { return true }
	r.deployer.Generations = true
	looker := &nodes{client: mgr.GetClient(), o: o, apis: apis, notes: nodeNotes}
	r.instead = func(ctx context.Context) (bool, error) {
		there, err := looker.managers(ctx)
		return len(there) > 0, err
	}
	all := handler.EnqueueRequestsFromMapFunc(daemon.Everything)
	b := builder.ControllerManagedBy(mgr).Named("cluster-operator").WithOptions(limits(window)).
		WatchesRawSource(daemon.Always(o.Resync, o.ImagesFile)).
		Watches(&openshift.ClusterOperator{}, all, builder.WithPredicates(changed(), named(status.Name))).
		Watches(&corev1.Secret{}, all, builder.WithPredicates(changed(), within(o.Namespace))).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(changed(), within(o.Namespace)))
	for _, kind := range []client.Object{&openshift.Infrastructure{}, &openshift.FeatureGate{}, &openshift.Proxy{}, &openshift.APIServer{}} {
		b.Watches(kind, all, builder.WithPredicates(changed(), named(openshift.ClusterName)))
	}
	if apis.kubeControllerManager {
		kcm := &metav1.PartialObjectMetadata{}
		kcm.SetGroupVersionKind(openshift.KubeControllerManagerKind)
		b.WatchesMetadata(kcm, all, builder.WithPredicates(changed(), named(openshift.ClusterName)))
	}
	if apis.ccm {
		b.Watches(&ccmv1alpha1.CloudControllerManager{}, all, builder.WithPredicates(changed()))
	}
	watchOperands(b, func(owner string) []reconcile.Request {
		if owner != r.deployer.Inventory.String() {
			return nil
		}
		return []reconcile.Request{{NamespacedName: cluster}}
	})
	return b.Complete(r)
}

// warnOfRelease says that the ClusterOperator will have a version for which no
// upgrade waits.
func warnOfRelease(log *slog.Logger, release string) {
	if release == openshift.SnapshotVersion || release == openshift.UnknownVersion {
		log.Warn("the variable RELEASE_VERSION is not that of a release: the ClusterOperator never has the version that an upgrade of the cluster waits for; "+
			"set it to what `oc get clusterversion version --output=jsonpath={.status.desired.version}` says", "release", release)
	}
}

func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
}

func within(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == namespace })
}
