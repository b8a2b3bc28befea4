// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/nodes/operator/watchdog"
)

// operandLabel is what pods of a cloud controller manager carry, with the
// platform as value.
const operandLabel = "infrastructure.openshift.io/cloud-controller-manager"

// addNodes adds the controllers that watch Nodes: watchdog, guard and its policy. They
// run whatever deploys the cloud controller manager.
func (n *operator) addNodes(mgr manager.Manager) error {
	g := &guard.Guard{
		Client: n.client, Events: controllers.NewRecorder(mgr.GetEventRecorder(guard.Component), nil), Namespace: n.o.Namespace,
		Limits: n.guarded, LimitedBy: n.limitedBy(), Now: time.Now,
	}
	errs := []error{g.SetupWithManager(mgr), n.addPolicy(mgr)}
	if n.o.WatchdogAfter > 0 {
		w := &watchdog.Watchdog{
			Client: n.client, Live: mgr.GetAPIReader(), Events: controllers.NewRecorder(mgr.GetEventRecorder(watchdog.Component), nil),
			Owner: n.owner, Patience: n.o.WatchdogAfter, Interval: n.o.Requeue, Now: time.Now,
		}
		errs = append(errs, w.SetupWithManager(mgr))
	}
	return errors.Join(errs...)
}

// limitedBy returns the kinds whose objects say whether deletions are guarded, and how.
func (n *operator) limitedBy() (kinds []client.Object) {
	if n.apis.ccm {
		kinds = append(kinds, &ccmv1alpha1.CloudControllerManager{})
	}
	if n.apis.openShift {
		kinds = append(kinds, &configv1.Infrastructure{})
	}
	return kinds
}

// addPolicy adds the controller that applies the policy while deletions are guarded and
// removes it otherwise.
func (n *operator) addPolicy(mgr manager.Manager) error {
	d := n.deployer(guardInventory)
	b := builder.ControllerManagedBy(mgr).Named("node-deletion-policy").WithOptions(n.limits()).
		WatchesRawSource(daemon.Periodically(n.o.Resync, daemon.Everything))
	for _, kind := range n.limitedBy() {
		b.Watches(kind, handler.EnqueueRequestsFromMapFunc(daemon.Everything), builder.WithPredicates(changed()))
	}
	watchOperands(b, ownedBy(d))
	return b.Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		_, guarded, err := n.guarded(ctx)
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

// unguard removes the policy unless it is still needed.
func (n *operator) unguard(ctx context.Context) error {
	_, guarded, err := n.guarded(ctx)
	if !guarded && err == nil {
		_, err = n.deployer(guardInventory).Sync(ctx, nil)
	}
	return err
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

// managers returns the CloudControllerManagers, the oldest first.
func (n *operator) managers(ctx context.Context) ([]ccmv1alpha1.CloudControllerManager, error) {
	var all ccmv1alpha1.CloudControllerManagerList
	if !n.apis.ccm {
		return nil, nil
	}
	err := n.client.List(ctx, &all)
	slices.SortFunc(all.Items, byAge)
	return all.Items, err
}

// active returns the oldest CloudControllerManager: it is rolled out, or being removed.
// The settings of the others do not count yet. It returns nil if there is none, or if
// OpenShift's platform decides what runs.
func (n *operator) active(ctx context.Context) (*ccmv1alpha1.CloudControllerManager, error) {
	all, err := n.managers(ctx)
	if len(all) == 0 || err != nil {
		return nil, err
	}
	if b, err := n.platform(ctx); b != nil || err != nil {
		return nil, err
	}
	for i := range all {
		if _, gone := n.notes.removed.Load(all[i].UID); !gone {
			return &all[i], nil
		}
	}
	return nil, nil
}

// guarded returns the limits of the manager that is rolled out; false if deletions are
// not guarded.
func (n *operator) guarded(ctx context.Context) (guard.Limits, bool, error) {
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
		return l, true, nil
	case n.apis.openShift && n.o.Guard:
		owner, expected, err := n.openShiftOwner(ctx)
		l.Prefixes = owner.Prefixes
		return l, expected, err
	}
	return l, false, nil
}

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

func (n *operator) prefixes(c *ccmv1alpha1.CloudControllerManager) []string {
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
func (n *operator) owner(ctx context.Context) (watchdog.Owner, bool, error) {
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
	if minor, err := parseMinor(c.Status.KubernetesVersion); err == nil {
		o.Skew = skewOf(c.Status.Version, minor)
	}
	return o, true, nil
}

func (n *operator) ownerOf(provider, name string) watchdog.Owner {
	missing, _ := n.notes.absent.Load(name)
	o := watchdog.Owner{
		Provider: provider, Prefixes: prefixes(provider), PodLabel: operandLabel,
		Lease: client.ObjectKey{Namespace: n.o.Namespace, Name: bundle.Manager},
	}
	o.Missing, _ = missing.([]string)
	return o
}

// openShiftOwner returns the manager of the cluster's platform on OpenShift; false if
// there is none.
func (n *operator) openShiftOwner(ctx context.Context) (watchdog.Owner, bool, error) {
	b, err := n.platform(ctx)
	if b == nil || err != nil {
		return watchdog.Owner{}, false, err
	}
	return n.ownerOf(strings.ToLower(b.Provider), inventoryName), true, nil
}

// platform returns the bundle of OpenShift's platform; nil if there is none.
func (n *operator) platform(ctx context.Context) (*bundle.Bundle, error) {
	if !n.apis.openShift {
		return nil, nil
	}
	var infra configv1.Infrastructure
	if err := n.client.Get(ctx, cluster, &infra); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	platform, err := settings.PlatformOf(&infra)
	if err != nil {
		return nil, nil // the operator reports it
	}
	return n.o.Bundles.Find(platform.Type, platform.CloudName, bundle.OpenShift), nil
}
