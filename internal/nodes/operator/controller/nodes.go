// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/nodes/operator/versions"
	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// guardInventory is the ConfigMap that lists the objects of the policy that guards
// deletions of Nodes.
const guardInventory = "ccm-operator-guard-inventory"

// operandLabel is what pods of a cloud controller manager carry, with the
// platform as value.
const operandLabel = "infrastructure.openshift.io/cloud-controller-manager"

// notes pass information from the deploying controllers to those that watch Nodes.
type notes struct {
	mu     sync.Mutex
	absent map[string][]string
	// removed are CloudControllerManagers whose applied objects are all gone.
	removed map[types.UID]bool
}

func (n *notes) remove(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.removed == nil {
		n.removed = map[types.UID]bool{}
	}
	n.removed[uid] = true
}

func (n *notes) gone(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed[uid]
}

// missing records the ConfigMaps and Secrets that pods lack.
func (n *notes) missing(name string, what []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.absent == nil {
		n.absent = map[string][]string{}
	}
	n.absent[name] = what
}

func (n *notes) get(name string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.absent[name]
}

// nodes sets up the controllers that watch Nodes: watchdog, guard and its policy. They
// run whatever deploys the cloud controller manager.
type nodes struct {
	client client.Client
	o      *Options
	apis   apis
	notes  *notes
}

func (o *Options) addNodes(mgr manager.Manager, apis apis, nodeNotes *notes) error {
	n := &nodes{client: mgr.GetClient(), o: o, apis: apis, notes: nodeNotes}
	w := &watchdog.Watchdog{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(watchdog.Component),
		Owner: n.owner, Patience: o.WatchdogAfter, Interval: o.Requeue, Now: time.Now,
	}
	g := &guard.Guard{
		Client: mgr.GetClient(), Events: mgr.GetEventRecorder(guard.Component), Namespace: o.Namespace,
		Limits: n.limits, Now: time.Now,
	}
	if apis.ccm {
		g.LimitedBy = append(g.LimitedBy, &ccmv1alpha1.CloudControllerManager{})
	}
	if apis.openShift {
		g.LimitedBy = append(g.LimitedBy, &openshift.Infrastructure{})
	}
	errs := []error{g.SetupWithManager(mgr), n.addPolicy(mgr, o.deployer(mgr, guardInventory))}
	if o.WatchdogAfter > 0 {
		errs = append(errs, w.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// addPolicy adds the controller that applies the policy while deletions are guarded and
// removes it otherwise.
func (n *nodes) addPolicy(mgr manager.Manager, d *Deployer) error {
	all := handler.EnqueueRequestsFromMapFunc(daemon.Everything)
	b := builder.ControllerManagedBy(mgr).Named("node-deletion-policy").
		WithOptions(limits(&failure.Window{Threshold: n.o.DegradedAfter})).
		WatchesRawSource(daemon.Always(n.o.Resync, ""))
	if n.apis.ccm {
		b.Watches(&ccmv1alpha1.CloudControllerManager{}, all, builder.WithPredicates(changed()))
	}
	if n.apis.openShift {
		b.Watches(&openshift.Infrastructure{}, all, builder.WithPredicates(changed()))
	}
	watchOperands(b, func(owner string) []reconcile.Request {
		if owner != d.Inventory.String() {
			return nil
		}
		return []reconcile.Request{{NamespacedName: cluster}}
	})
	return b.Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		_, guarded, err := n.limits(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		var objects []client.Object
		if guarded {
			objects = guard.Policy(guard.NodeController, "system:serviceaccount:"+n.o.Namespace+":cloud-controller-manager")
		}
		if _, err = d.Sync(ctx, objects); err == nil && !guarded {
			err = forgetGuard(ctx, d)
		}
		return reconcile.Result{}, err
	}))
}

// forgetGuard deletes the guard's inventory. It runs in each reconciliation, so it first
// asks the cache whether there is one. An inventory that the cache does not know yet is
// deleted by the next one.
func forgetGuard(ctx context.Context, d *Deployer) error {
	if err := d.Client.Get(ctx, d.Inventory, &corev1.ConfigMap{}); err != nil {
		return client.IgnoreNotFound(err)
	}
	return d.Forget(ctx)
}

// managers returns the CloudControllerManagers that are not being deleted, the oldest
// first.
func (n *nodes) managers(ctx context.Context) ([]ccmv1alpha1.CloudControllerManager, error) {
	if !n.apis.ccm {
		return nil, nil
	}
	var all ccmv1alpha1.CloudControllerManagerList
	err := n.client.List(ctx, &all)
	slices.SortFunc(all.Items, byAge)
	return slices.DeleteFunc(all.Items, func(c ccmv1alpha1.CloudControllerManager) bool { return c.DeletionTimestamp != nil }), err
}

// active returns the oldest CloudControllerManager: it is rolled out, or being removed.
// The settings of the others do not count yet. It returns nil if there is none, or if
// OpenShift's platform decides what runs.
func (n *nodes) active(ctx context.Context) (*ccmv1alpha1.CloudControllerManager, error) {
	if !n.apis.ccm {
		return nil, nil
	}
	b, err := n.platform(ctx)
	if b != nil || err != nil {
		return nil, err
	}
	var all ccmv1alpha1.CloudControllerManagerList
	err = n.client.List(ctx, &all)
	all.Items = slices.DeleteFunc(all.Items, func(c ccmv1alpha1.CloudControllerManager) bool { return n.notes.gone(c.UID) })
	if err != nil || len(all.Items) == 0 {
		return nil, err
	}
	oldest := slices.MinFunc(all.Items, byAge)
	return &oldest, nil
}

// limits returns the limits of the manager that is rolled out; false if deletions are
// not guarded.
func (n *nodes) limits(ctx context.Context) (guard.Limits, bool, error) {
	l := guard.Defaults()
	c, err := n.active(ctx)
	switch {
	case err != nil:
		return l, false, err
	case c != nil && c.Spec.NodeDeletions != nil && c.Spec.NodeDeletions.Mode == ccmv1alpha1.Unguarded:
		return l, false, nil
	case c != nil:
		l = limitsOf(c.Spec.NodeDeletions)
		l.Prefixes = n.prefixes(c)
		return l, true, l.Verify()
	case n.apis.openShift && n.o.Guard:
		owner, expected, err := n.openShiftOwner(ctx)
		l.Prefixes = owner.Prefixes
		return l, expected, err
	}
	return l, false, nil
}

// limitsOf returns the limits in a CloudControllerManager, with defaults.
func limitsOf(d *ccmv1alpha1.NodeDeletions) guard.Limits {
	l := guard.Defaults()
	if d == nil {
		return l
	}
	if d.Max != nil {
		l.Deletions = int(*d.Max)
	}
	for limit, given := range map[*time.Duration]*metav1.Duration{&l.Window: d.Window, &l.NotReadyFor: d.NotReadyFor, &l.YoungFor: d.MinAge} {
		if given != nil {
			*limit = given.Duration
		}
	}
	return l
}

func (n *nodes) prefixes(c *ccmv1alpha1.CloudControllerManager) []string {
	if len(c.Spec.ProviderIDPrefixes) > 0 {
		return c.Spec.ProviderIDPrefixes
	}
	return prefixes(c.Spec.Provider)
}

// prefixes returns the prefixes of a provider's providerIDs: its own and, for machines
// that Cluster API made, Outrigger's.
func prefixes(provider string) []string {
	own := provider + "://"
	switch provider {
	case "alibabacloud":
		return []string{own, "alicloud://", "outrigger://" + provider + "/"}
	case "gcp":
		own = "gce://"
	}
	return []string{own, "outrigger://" + provider + "/"}
}

// owner returns the manager that should initialize Nodes; false if there is none.
func (n *nodes) owner(ctx context.Context) (watchdog.Owner, bool, error) {
	c, err := n.active(ctx)
	if err != nil {
		return watchdog.Owner{}, false, err
	}
	if c == nil {
		return n.openShiftOwner(ctx)
	}
	if c.DeletionTimestamp != nil {
		return watchdog.Owner{}, false, nil
	}
	o := n.ownerOf(c.Spec.Provider, c.Name)
	o.Prefixes = n.prefixes(c)
	if minor, err := versions.ParseMinor(c.Status.KubernetesVersion); err == nil {
		o.Skew = versions.Skew(c.Status.Version, minor)
	}
	return o, true, nil
}

func (n *nodes) ownerOf(provider, name string) watchdog.Owner {
	o := watchdog.Owner{
		Provider: provider, Prefixes: prefixes(provider), Missing: n.notes.get(name),
		Lease:         client.ObjectKey{Namespace: n.o.Namespace, Name: bundle.Manager},
		PodsNamespace: n.o.Namespace,
	}
	if has, err := labels.NewRequirement(operandLabel, selection.Exists, nil); err == nil {
		o.Pods = labels.NewSelector().Add(*has)
	}
	return o
}

// openShiftOwner returns the manager of the cluster's platform on OpenShift; false if
// there is none.
func (n *nodes) openShiftOwner(ctx context.Context) (watchdog.Owner, bool, error) {
	b, err := n.platform(ctx)
	if b == nil || err != nil {
		return watchdog.Owner{}, false, err
	}
	return n.ownerOf(strings.ToLower(b.Provider), inventoryName), true, nil
}

// platform returns the bundle of OpenShift's platform; nil if there is none.
func (n *nodes) platform(ctx context.Context) (*bundle.Bundle, error) {
	var infra openshift.Infrastructure
	if !n.apis.openShift {
		return nil, nil
	}
	if err := n.client.Get(ctx, cluster, &infra); err != nil {
		return nil, ignoreNotFound(err)
	}
	platform, err := settings.PlatformOf(&infra)
	if err != nil {
		return nil, nil // the operator reports it
	}
	return n.o.Bundles.Find(platform.Type, platform.CloudName, bundle.OpenShift), nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
