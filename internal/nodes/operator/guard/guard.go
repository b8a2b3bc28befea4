// SPDX-License-Identifier: Apache-2.0

// Package guard keeps a cloud controller manager with a wrong view of its cloud,
// because of a token with too few rights or another account's credentials, from
// deleting the Nodes of a cluster.
//
// A ValidatingAdmissionPolicy refuses every deletion of a Node by such a manager
// unless the Node has a ticket, an annotation. The guard gives tickets: to a Node
// that is of this cloud, is not new, and has not been Ready for a while, to few of
// them in a window of time, and to none while many Nodes are not Ready at once. A
// policy sees one object and no clock; hence the tickets. A person can give one too.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/internal/controllers"
)

// Component is the source of the Events.
const Component = "node-deletion-guard"

const reasonGuarded = "NodeDeletionGuarded"

// Keys of the ConfigMap. Their values are JSON: the times at which tickets were given,
// and the times at which allowances of persons were first seen.
const (
	ticketsKey = "tickets"
	allowedKey = "allowed"
)

// Guard gives tickets to Nodes. A cluster has one active guard.
type Guard struct {
	Client    client.Client
	Events    *controllers.Recorder
	Namespace string
	// Limits returns the current limits; false while there is nothing to guard.
	Limits func(context.Context) (Limits, bool, error)
	// LimitedBy are kinds whose objects change the limits.
	LimitedBy []client.Object
	Now       func() time.Time
}

// SetupWithManager registers the guard.
func (g *Guard) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: g.key()}}
	})
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool { return client.ObjectKeyFromObject(o) == g.key() })
	// A kubelet's heartbeat changes no decision.
	decisive := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return was.Annotations[Annotation] != is.Annotations[Annotation] || ready(was) != ready(is) || !since(was).Equal(since(is)) || was.Spec.ProviderID != is.Spec.ProviderID
	}}
	b := ctrl.NewControllerManagedBy(mgr).Named("node-deletion-guard").
		Watches(&corev1.Node{}, all, builder.WithPredicates(decisive)).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(ours))
	for _, kind := range g.LimitedBy {
		b.Watches(kind, all)
	}
	return b.Complete(g)
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
	if !maps.EqualFunc(d.Tickets, before.tickets, time.Time.Equal) || !maps.EqualFunc(expiry.Allowed, before.allowed, time.Time.Equal) {
		if err := g.write(ctx, cm, saved{d.Tickets, expiry.Allowed}); err != nil {
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
	g.report(nodes.Items, d, expiry.Ended)
	if expiry.Again != 0 {
		d.soon(expiry.Again)
	}
	return ctrl.Result{RequeueAfter: d.Again}, errors.Join(failed...)
}

// disable removes all tickets and the ConfigMap: nobody else would. Allowances of
// persons stay.
func (g *Guard) disable(ctx context.Context, nodes []corev1.Node) error {
	var failed []error
	for i := range nodes {
		g.Events.Clear(&nodes[i])
		if nodes[i].Annotations[Annotation] == string(nodes[i].UID) {
			failed = append(failed, g.mark(ctx, &nodes[i], false))
		}
	}
	refused.Set(0)
	open.Set(0)
	if err := errors.Join(failed...); err != nil {
		return err
	}
	cm := &corev1.ConfigMap{}
	if err := g.Client.Get(ctx, g.key(), cm); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(g.Client.Delete(ctx, cm))
}

type saved struct {
	tickets Tickets
	allowed Allowances
}

// read returns the ConfigMap and its content. If there is none, both are empty. Tickets
// that cannot be parsed are an error: otherwise too many could be given.
func (g *Guard) read(ctx context.Context) (*corev1.ConfigMap, saved, error) {
	cm := &corev1.ConfigMap{}
	content := saved{Tickets{}, Allowances{}}
	if err := client.IgnoreNotFound(g.Client.Get(ctx, g.key(), cm)); err != nil {
		return nil, content, err
	}
	cm.Name, cm.Namespace = Name, g.Namespace
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

// report updates the metrics of refusals, and emits an Event for each Node with a new
// reason or an allowance that has ended.
func (g *Guard) report(nodes []corev1.Node, d Decision, ended map[string]string) {
	refused.Set(float64(len(d.Refused)))
	open.Set(float64(len(d.Open)))
	emit := func(n *corev1.Node, reason, format, why string) {
		note := fmt.Sprintf(format+": kubectl annotate node %s %s=%s", why, n.Name, Annotation, Allow)
		g.Events.Emit(n, nil, corev1.EventTypeNormal, reason, "Guard", note)
	}
	for i := range nodes {
		n := &nodes[i]
		if why := d.Refused[n.Name]; why == "" {
			g.Events.Clear(n)
		} else if g.Events.Changed(n, reasonGuarded, why) {
			emit(n, reasonGuarded, "a cloud controller manager may not delete this Node: %s; to allow the deletion", why)
		}
		if why := ended[n.Name]; why != "" {
			emit(n, "NodeDeletionAllowanceEnded", "the permission to delete this Node has expired: %s; to allow the deletion again", why)
		}
	}
}

var (
	refused = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outrigger_node_deletions_guarded",
		Help: "Nodes that are not Ready and that a cloud controller manager may not delete.",
	})
	open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outrigger_node_deletions_open",
		Help: "Nodes that a cloud controller manager may delete.",
	})
)

func init() { metrics.Registry.MustRegister(refused, open) }

// Name is that of policy, binding and ConfigMap.
const Name = "ccm-node-deletion-guard"

// Annotation is on a Node that may be deleted: its value is the Node's UID, which
// is a ticket, or Allow, which a person has set.
const (
	Annotation = "ccm.outrigger.dev/deletion"
	Allow      = "allow"
)

// NodeController is the account with which the manager's controllers of Nodes
// work under --use-service-account-credentials (k8s.io/cloud-provider/names).
const NodeController = "system:serviceaccount:kube-system:node-controller"

// Policy returns the objects of the admission policy that refuses deletions by these
// users without a ticket. It has no parameters: for those the API server requires that
// whoever creates the policy may read all ConfigMaps of the cluster, and it looks them
// up before it checks who deletes.
func Policy(users ...string) []client.Object {
	meta := metav1.ObjectMeta{Name: Name}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policySpec(users)},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
}

func policySpec(users []string) admissionv1.ValidatingAdmissionPolicySpec {
	quoted := make([]string, len(users))
	for i, u := range users {
		quoted[i] = strconv.Quote(u)
	}
	fail, reason := admissionv1.Fail, metav1.StatusReasonForbidden
	nodes := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}
	return admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{nodes}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "by-a-cloud-controller-manager", Expression: "request.userInfo.username in [" + strings.Join(quoted, ", ") + "]",
		}},
		Variables: []admissionv1.Variable{{
			Name: "ticket", Expression: fmt.Sprintf("has(oldObject.metadata.annotations) && '%[1]s' in oldObject.metadata.annotations ? oldObject.metadata.annotations['%[1]s'] : ''", Annotation),
		}},
		Validations: []admissionv1.Validation{{
			Expression: fmt.Sprintf("variables.ticket == '%s' || variables.ticket == oldObject.metadata.uid", Allow),
			MessageExpression: fmt.Sprintf("'the deletion of Node ' + oldObject.metadata.name + ' is guarded, its Events say why; to let it pass: kubectl annotate node ' + "+
				"oldObject.metadata.name + ' %s=%s'", Annotation, Allow),
			Reason: &reason,
		}},
	}
}
