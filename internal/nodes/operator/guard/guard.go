// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Component is the source of the Events.
const Component = "node-deletion-guard"

// Keys of the ConfigMap. Their values are JSON: the times at which tickets were given,
// and the times at which allowances of persons were first seen.
const (
	ticketsKey = "tickets"
	allowedKey = "allowed"
)

// Guard gives tickets to Nodes. A cluster has one active guard.
type Guard struct {
	Client    client.Client
	Events    events.EventRecorder
	Namespace string
	// Limits returns the current limits; false while there is nothing to guard.
	Limits func(context.Context) (Limits, bool, error)
	// LimitedBy are kinds whose objects change the limits.
	LimitedBy []client.Object
	Now       func() time.Time

	// reported holds the reasons that were emitted as Events by the Node's name.
	reported map[string]string
}

// SetupWithManager registers the guard.
func (g *Guard) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: g.key()}}
	})
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == g.key() })
	b := ctrl.NewControllerManagedBy(mgr).Named("node-deletion-guard").
		Watches(&corev1.Node{}, all, builder.WithPredicates(readiness())).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(ours))
	for _, kind := range g.LimitedBy {
		b.Watches(kind, all)
	}
	return b.Complete(g)
}

// readiness passes the updates of Nodes that may change a decision, which a kubelet's
// heartbeat does not.
func readiness() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return was.Annotations[Annotation] != is.Annotations[Annotation] || ready(was) != ready(is) || !since(was).Equal(since(is)) || was.Spec.ProviderID != is.Spec.ProviderID
	}}
}

func (g *Guard) key() types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: Name}
}

// Reconcile checks all Nodes. Tickets are recorded before they are given, so
// that they count after a crash.
func (g *Guard) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	limits, guarded, err := g.Limits(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var nodes corev1.NodeList
	if err := g.Client.List(ctx, &nodes); err != nil {
		return ctrl.Result{}, err
	}
	if !guarded {
		return ctrl.Result{}, g.disable(ctx, nodes.Items)
	}
	cm, before, err := g.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := limits.Decide(nodes.Items, before.tickets, g.Now())
	expiry := limits.lapses(nodes.Items, before.allowed, g.Now())
	if after := (saved{d.Tickets, expiry.Allowed}); !after.equal(before) {
		if err := g.write(ctx, cm, after); err != nil {
			return ctrl.Result{}, err
		}
	}
	var failed []error
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if expiry.Ended[n.Name] != "" || n.Annotations[Annotation] != Allow {
			failed = append(failed, g.mark(ctx, n, slices.Contains(d.Open, ticketOf(n))))
		}
	}
	g.report(nodes.Items, d)
	g.reportExpired(nodes.Items, expiry.Ended)
	return ctrl.Result{RequeueAfter: sooner(d.Again, expiry.Again)}, errors.Join(failed...)
}

// sooner returns the shorter of two times, where 0 means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// disable removes all tickets and the ConfigMap: nobody else would. Allowances of
// persons stay.
func (g *Guard) disable(ctx context.Context, nodes []corev1.Node) error {
	var failed []error
	for i := range nodes {
		if nodes[i].Annotations[Annotation] == string(nodes[i].UID) {
			failed = append(failed, g.mark(ctx, &nodes[i], false))
		}
	}
	refused.Set(0)
	open.Set(0)
	g.reported = nil
	if err := errors.Join(failed...); err != nil {
		return err
	}
	cm := &corev1.ConfigMap{}
	if err := g.Client.Get(ctx, g.key(), cm); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(g.Client.Delete(ctx, cm))
}

// saved is the content of the ConfigMap.
type saved struct {
	tickets Tickets
	allowed Allowances
}

func (n saved) equal(other saved) bool {
	return maps.EqualFunc(n.tickets, other.tickets, time.Time.Equal) && maps.EqualFunc(n.allowed, other.allowed, time.Time.Equal)
}

// read returns the ConfigMap and its content. If there is none, both are empty. Tickets
// that cannot be parsed are an error: otherwise too many could be given.
func (g *Guard) read(ctx context.Context) (*corev1.ConfigMap, saved, error) {
	cm := &corev1.ConfigMap{}
	content := saved{Tickets{}, Allowances{}}
	err := g.Client.Get(ctx, g.key(), cm)
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: g.Namespace}}, content, nil
	}
	if err != nil {
		return nil, content, err
	}
	for key, into := range map[string]any{ticketsKey: &content.tickets, allowedKey: &content.allowed} {
		if text := cm.Data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				return nil, content, fmt.Errorf("ConfigMap %s, key %q: %w: remove the key, and what it had for the last window is forgotten", g.key(), key, err)
			}
		}
	}
	return cm, content, nil
}

// write creates or updates the ConfigMap. It fails if somebody changed it meanwhile.
func (g *Guard) write(ctx context.Context, cm *corev1.ConfigMap, all saved) error {
	next := cm.DeepCopy()
	next.Data = map[string]string{}
	for key, from := range map[string]map[string]time.Time{ticketsKey: all.tickets, allowedKey: all.allowed} {
		text, err := json.Marshal(from)
		if err != nil {
			return err
		}
		next.Data[key] = string(text)
	}
	if cm.ResourceVersion == "" {
		return g.Client.Create(ctx, next)
	}
	return g.Client.Update(ctx, next)
}

// mark gives a Node its ticket, or removes the ticket or allowance that it has.
func (g *Guard) mark(ctx context.Context, n *corev1.Node, wanted bool) error {
	value, has := n.Annotations[Annotation]
	if has == wanted && (!has || value == string(n.UID)) {
		return nil
	}
	var ticket any // null removes it
	if wanted {
		ticket = string(n.UID)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		// With the uid, another Node of that name does not get the ticket.
		"uid": n.UID, "annotations": map[string]any{Annotation: ticket},
	}})
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(g.Client.Patch(ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// reportExpired emits an Event for each Node whose allowance has expired.
func (g *Guard) reportExpired(nodes []corev1.Node, ended map[string]string) {
	for i := range nodes {
		if why := ended[nodes[i].Name]; why != "" {
			g.Events.Eventf(&nodes[i], nil, corev1.EventTypeNormal, "NodeDeletionAllowanceEnded", "Guard",
				"the permission to delete this Node has expired: %s; to allow the deletion again: kubectl annotate node %s %s=%s", why, nodes[i].Name, Annotation, Allow)
		}
	}
}

// report updates the metrics of refusals and emits an Event for each Node with a
// new reason.
func (g *Guard) report(nodes []corev1.Node, d Decision) {
	refused.Set(float64(len(d.Refused)))
	open.Set(float64(len(d.Open)))
	before := g.reported
	g.reported = maps.Clone(d.Refused)
	for _, name := range slices.Sorted(maps.Keys(d.Refused)) {
		if before[name] == d.Refused[name] {
			continue
		}
		i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		g.Events.Eventf(&nodes[i], nil, corev1.EventTypeNormal, "NodeDeletionGuarded", "Guard",
			"a cloud controller manager may not delete this Node: %s; to allow the deletion: kubectl annotate node %s %s=%s", d.Refused[name], name, Annotation, Allow)
	}
}
