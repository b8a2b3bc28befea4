// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// Names of the ConfigMaps that list what was applied: on OpenShift, for a
// CloudControllerManager (the prefix is before its name), and of the policy that
// guards deletions of Nodes.
const (
	inventoryName   = "ccm-operator-inventory"
	inventoryPrefix = "ccm-operator-inventory-of-"
	guardInventory  = "ccm-operator-guard-inventory"
)

// Inventory returns the name of the ConfigMap that lists the objects applied for a
// CloudControllerManager, or for OpenShift's platform if manager is empty.
func Inventory(manager string) string {
	if manager == "" {
		return inventoryName
	}
	return inventoryPrefix + manager
}

// ManagerOf returns the CloudControllerManager whose objects a ConfigMap of this name
// lists; empty if it is of none.
func ManagerOf(inventory string) string {
	if name, ok := strings.CutPrefix(inventory, inventoryPrefix); ok {
		return name
	}
	return ""
}

// operator is what its controllers share.
type operator struct {
	client client.Client
	o      *Options
	apis   apis
	events *controllers.Recorder
	// status writes the ClusterOperator; nil where there is no such kind.
	status *status.Operator
	notes  notes
}

// notes pass information from the controllers that deploy to those that watch Nodes.
type notes struct {
	// absent has the ConfigMaps and Secrets that pods lack, a []string, by the name of
	// the CloudControllerManager, or inventoryName.
	absent sync.Map
	// removed has the UIDs of CloudControllerManagers whose applied objects are all gone.
	removed sync.Map
}

func (o *Options) addControllers(mgr manager.Manager, apis apis, own *inputs, log *slog.Logger) error {
	p := &operator{client: mgr.GetClient(), o: o, apis: apis, events: controllers.NewRecorder(mgr.GetEventRecorder(operatorName), nil)}
	var errs []error
	if apis.openShift {
		p.status = status.NewOperator(p.client, mgr.GetAPIReader(), o.Release, p.events)
		errs = append(errs, p.addOpenShift(mgr, own, log.With("controller", "cluster-operator")))
	}
	if apis.ccm {
		errs = append(errs, p.addCCM(mgr, log.With("controller", "cloud-controller-manager")))
	}
	return errors.Join(append(errs, p.addNodes(mgr))...)
}

func (p *operator) deployer(inventory string) *Deployer {
	return &Deployer{Applier: apply.Applier{
		Client: p.client, Events: p.events, Manager: operatorName,
		Inventory: client.ObjectKey{Namespace: p.o.Namespace, Name: inventory},
	}}
}

// limits returns options that retry soon enough to report a failure when it has lasted.
func (p *operator) limits() ctrl.Options {
	return ctrl.Options{RateLimiter: daemon.RateLimiter((&failure.Window{Threshold: p.o.DegradedAfter}).Retry())}
}

func (p *operator) addOpenShift(mgr manager.Manager, in *inputs, log *slog.Logger) error {
	warnOfRelease(log, p.o.Release)
	in.client, in.live, in.log = p.client, mgr.GetAPIReader(), log
	r := &openShift{
		operator: p, inputs: in, deployer: p.deployer(inventoryName),
		window: &failure.Window{Threshold: p.o.DegradedAfter}, now: time.Now, log: log,
	}
	// Names of a platform's objects are OpenShift's: what has one and is there
	// already is its former operator's.
	r.deployer.Adopts = func(client.Object) bool { return true }
	r.deployer.Generations = true
	all := handler.EnqueueRequestsFromMapFunc(daemon.Everything)
	b := builder.ControllerManagedBy(mgr).Named("cluster-operator").WithOptions(p.limits()).
		WatchesRawSource(daemon.Periodically(p.o.Resync, daemon.Everything)).
		WatchesRawSource(daemon.WhenReplaced(p.o.ImagesFile)).
		Watches(&configv1.ClusterOperator{}, all, builder.WithPredicates(changed(), named(status.Name))).
		Watches(&corev1.Secret{}, all, builder.WithPredicates(changed(), within(p.o.Namespace))).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(changed(), within(p.o.Namespace)))
	for _, kind := range []client.Object{&configv1.Infrastructure{}, &configv1.FeatureGate{}, &configv1.Proxy{}, &configv1.APIServer{}} {
		b.Watches(kind, all, builder.WithPredicates(changed(), named(openshift.ClusterName)))
	}
	if p.apis.kubeControllerManager {
		kcm := &metav1.PartialObjectMetadata{}
		kcm.SetGroupVersionKind(openshift.KubeControllerManagerKind)
		b.WatchesMetadata(kcm, all, builder.WithPredicates(changed(), named(openshift.ClusterName)))
	}
	if p.apis.ccm {
		b.Watches(&ccmv1alpha1.CloudControllerManager{}, all, builder.WithPredicates(changed()))
	}
	watchOperands(b, ownedBy(r.deployer))
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

func (p *operator) addCCM(mgr manager.Manager, log *slog.Logger) error {
	r := &ccmReconciler{
		operator: p, now: time.Now, log: log, memories: map[string]*memory{},
		servers: &servers{version: askOne(mgr.GetConfig()), settle: p.o.Settle, now: time.Now},
	}
	every := handler.EnqueueRequestsFromMapFunc(r.every)
	b := builder.ControllerManagedBy(mgr).Named("cloud-controller-manager").WithOptions(p.limits()).
		For(&ccmv1alpha1.CloudControllerManager{}, builder.WithPredicates(userChanges())).
		WatchesRawSource(daemon.Periodically(p.o.Resync, r.every)).
		Watches(&corev1.Secret{}, every, builder.WithPredicates(changed(), within(p.o.Namespace))).
		Watches(&corev1.ConfigMap{}, every, builder.WithPredicates(changed()))
	watchOperands(b, func(owner string) []reconcile.Request {
		name, ok := strings.CutPrefix(owner, p.o.Namespace+"/"+inventoryPrefix)
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	return b.Complete(r)
}

// every returns a request for each CloudControllerManager: they are few.
func (r *ccmReconciler) every(ctx context.Context, _ client.Object) []reconcile.Request {
	all, err := r.managers(ctx)
	if err != nil {
		r.log.Error("list CloudControllerManagers", "error", err)
	}
	requests := make([]reconcile.Request, len(all))
	for i := range all {
		requests[i].Name = all[i].Name
	}
	return requests
}

func named(name string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == name })
}

func within(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == namespace })
}
