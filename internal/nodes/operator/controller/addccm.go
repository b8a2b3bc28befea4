// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// inventoryPrefix begins the name of the ConfigMap that lists what was applied
// for a CloudControllerManager, before its name.
const inventoryPrefix = "ccm-operator-inventory-of-"

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
	name, ok := strings.CutPrefix(inventory, inventoryPrefix)
	if !ok {
		return ""
	}
	return name
}

func (o *Options) addCCM(mgr manager.Manager, apis apis, nodeNotes *notes, log *slog.Logger) error {
	r := &ccmReconciler{
		client: mgr.GetClient(), o: o, notes: nodeNotes, now: time.Now, log: log,
		newDeployer: func(name string) *Deployer { return o.deployer(mgr, inventoryPrefix+name) },
		inputs:      &ccmInputs{client: mgr.GetClient(), o: o, synced: apis.openShift, now: time.Now},
		servers:     &servers{version: askOne(mgr.GetConfig()), settle: o.Settle, now: time.Now},
		windows:     map[string]*failure.Window{}, deployers: map[string]*Deployer{},
	}
	looker := &nodes{client: mgr.GetClient(), o: o, apis: apis, notes: nodeNotes}
	r.platform = looker.platform
	r.unguard = func(ctx context.Context) error {
		if _, guarded, err := looker.limits(ctx); guarded {
			return nil
		} else if err != nil {
			return err
		}
		_, err := o.deployer(mgr, guardInventory).Sync(ctx, nil)
		return err
	}
	if apis.openShift {
		r.mirror.status = status.NewOperator(mgr.GetClient(), mgr.GetAPIReader(), o.Release, mgr.GetEventRecorder(operatorName))
	}
	every := handler.EnqueueRequestsFromMapFunc(r.every)
	b := builder.ControllerManagedBy(mgr).Named("cloud-controller-manager").
		WithOptions(limits(&failure.Window{Threshold: o.DegradedAfter})).
		For(&ccmv1alpha1.CloudControllerManager{}, builder.WithPredicates(userChanges())).
		WatchesRawSource(daemon.Periodically(o.Resync, r.every)).
		Watches(&corev1.Secret{}, every, builder.WithPredicates(changed(), within(o.Namespace))).
		Watches(&corev1.ConfigMap{}, every, builder.WithPredicates(changed()))
	watchOperands(b, func(owner string) []reconcile.Request {
		name, ok := strings.CutPrefix(owner, o.Namespace+"/"+inventoryPrefix)
		if !ok {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	return b.Complete(r)
}

// every returns a request for each CloudControllerManager: they are few.
func (r *ccmReconciler) every(ctx context.Context, _ client.Object) []reconcile.Request {
	var all ccmv1alpha1.CloudControllerManagerList
	if err := r.client.List(ctx, &all); err != nil {
		r.log.Error("list CloudControllerManagers", "error", err)
		return nil
	}
	requests := make([]reconcile.Request, len(all.Items))
	for i := range all.Items {
		requests[i].Name = all.Items[i].Name
	}
	return requests
}
