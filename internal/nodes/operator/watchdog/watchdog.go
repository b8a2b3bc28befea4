// SPDX-License-Identifier: Apache-2.0

// Package watchdog reports why a Node is not initialized by its cloud controller
// manager. Such managers report no failures themselves, so that a Node can stay
// tainted for a day and nobody knows why. The watchdog inspects the cluster (the
// Node, the manager's pods, its lease, Events) and names the cause, in a condition
// and an Event of the Node and in a metric. It works with any cloud controller
// manager.
package watchdog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/internal/controllers"
)

// Component is the source of the Events.
const Component = "cloud-init-watchdog"

// Condition is the type of the Node's condition. It is set once a Node has been
// waiting for too long, and stays.
const Condition corev1.NodeConditionType = "CloudProviderInitialized"

// Owner is the cloud controller manager that should initialize the Nodes.
type Owner struct {
	// Provider, Prefixes, Missing and Skew are those of [Facts].
	Provider          string
	Prefixes, Missing []string
	Skew              string
	// Lease is in the namespace of the pods, which have the label PodLabel; none if it
	// is empty.
	Lease    client.ObjectKey
	PodLabel string
}

// Watchdog checks every Node.
type Watchdog struct {
	// Client reads Nodes, Pods and Leases from a cache; Live reads Events.
	Client client.Client
	Live   client.Reader
	Events *controllers.Recorder
	// Owner returns who should initialize Nodes now; false while nobody should.
	Owner func(context.Context) (Owner, bool, error)
	// Patience is how long a Node may wait before anything is said, and Interval
	// how often it is looked at again.
	Patience, Interval time.Duration
	Now                func() time.Time

	warnings warnings
}

// SetupWithManager registers the watchdog.
func (w *Watchdog) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("node-watchdog").For(&corev1.Node{}).Complete(w)
}

// Reconcile looks at one Node.
func (w *Watchdog) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	var n corev1.Node
	if err := w.Client.Get(ctx, r.NamespacedName, &n); err != nil {
		if apierrors.IsNotFound(err) {
			forget(r.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if n.DeletionTimestamp != nil || Initialized(&n) && conditionOf(&n) == nil {
		forget(n.Name)
		return ctrl.Result{}, nil
	}
	waited := w.Now().Sub(n.CreationTimestamp.Time)
	if !Initialized(&n) && waited < w.Patience {
		return ctrl.Result{RequeueAfter: w.Patience - waited}, nil
	}
	return w.check(ctx, &n, waited)
}

func (w *Watchdog) check(ctx context.Context, n *corev1.Node, waited time.Duration) (ctrl.Result, error) {
	owner, expected, err := w.Owner(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !expected && !Initialized(n) {
		return ctrl.Result{RequeueAfter: w.Interval}, nil
	}
	facts, err := w.facts(ctx, n, owner)
	if err != nil {
		return ctrl.Result{}, err
	}
	cause, message := Diagnose(n, facts, w.Now())
	if err := w.writeCondition(ctx, n, cause, message); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cause == None {
		forget(n.Name)
		return ctrl.Result{}, nil
	}
	remember(n.Name, cause, waited)
	return ctrl.Result{RequeueAfter: w.Interval}, nil
}

// facts reads the inputs of a diagnosis. It is called only for Nodes that wait.
func (w *Watchdog) facts(ctx context.Context, n *corev1.Node, o Owner) (Facts, error) {
	f := Facts{Provider: o.Provider, Prefixes: o.Prefixes, Missing: o.Missing, Skew: o.Skew}
	if Initialized(n) {
		return f, nil
	}
	var pods corev1.PodList
	if o.PodLabel != "" {
		if err := w.Client.List(ctx, &pods, client.InNamespace(o.Lease.Namespace), client.HasLabels{o.PodLabel}); err != nil {
			return f, err
		}
	}
	f.Pods = pods.Items
	var lease coordinationv1.Lease
	if err := w.Client.Get(ctx, o.Lease, &lease); err == nil {
		f.Lease = &lease
	} else if !apierrors.IsNotFound(err) {
		return f, err
	}
	var err error
	f.Warning, err = w.warningOf(ctx, n.UID)
	return f, err
}

func (w *Watchdog) writeCondition(ctx context.Context, n *corev1.Node, cause Cause, message string) error {
	status := corev1.ConditionFalse
	if cause == None {
		status = corev1.ConditionTrue
	}
	had := conditionOf(n)
	if had != nil && had.Status == status && had.Reason == string(cause) && had.Message == message {
		return nil
	}
	next := corev1.NodeCondition{
		Type: Condition, Status: status, Reason: string(cause), Message: message,
		LastHeartbeatTime: metav1.NewTime(w.Now()), LastTransitionTime: metav1.NewTime(w.Now()),
	}
	if had != nil && had.Status == status {
		next.LastTransitionTime = had.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{next}}})
	if err != nil {
		return err
	}
	// A strategic patch changes one condition and leaves those of the kubelet.
	if err := w.Client.Status().Patch(ctx, n.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		return fmt.Errorf("condition %s of Node %s: %w", Condition, n.Name, err)
	}
	// A cache may not know yet that the condition has this cause.
	if (had == nil || had.Reason != string(cause)) && w.Events.Changed(n, string(Condition), string(cause)) {
		kind := corev1.EventTypeWarning
		if cause == None {
			kind = corev1.EventTypeNormal
		}
		w.Events.Emit(n, nil, kind, string(cause), "Initialize", message)
	}
	return nil
}

func conditionOf(n *corev1.Node) *corev1.NodeCondition {
	_, c := nodeutil.GetNodeCondition(&n.Status, Condition)
	return c
}

// uninitialized is the only metric: a Node that is initialized, gone or still in
// its time has no value.
var uninitialized = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "outrigger_node_uninitialized_seconds",
	Help: "How long a Node has waited for its cloud controller manager, when last looked at, by cause.",
}, []string{"node", "cause"})

func init() { metrics.Registry.MustRegister(uninitialized) }

func remember(node string, cause Cause, waited time.Duration) {
	forget(node)
	uninitialized.WithLabelValues(node, string(cause)).Set(waited.Seconds())
}

func forget(node string) { uninitialized.DeletePartialMatch(prometheus.Labels{"node": node}) }

// page is how many Events are asked for at a time.
const page = 500

// warnings are the newest ones of cloud controller managers, by the UID of the Node
// that each is about. They are read for all Nodes at once: a cluster in which none
// is initialized has many.
type warnings struct {
	at     time.Time
	newest map[types.UID]*corev1.Event
}

// warningOf returns a manager's newest warning about a Node, or nil. It may be half an
// interval old.
func (w *Watchdog) warningOf(ctx context.Context, node types.UID) (*corev1.Event, error) {
	s := &w.warnings
	if now := w.Now(); s.newest == nil || now.Sub(s.at) >= w.Interval/2 {
		newest, err := newestWarnings(ctx, w.Live)
		if err != nil {
			return nil, err
		}
		s.newest, s.at = newest, now
	}
	return s.newest[node], nil
}

func newestWarnings(ctx context.Context, reader client.Reader) (map[types.UID]*corev1.Event, error) {
	newest := map[types.UID]*corev1.Event{}
	for next := ""; ; {
		var all corev1.EventList
		// Events about what has no namespace are in the default one.
		err := reader.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault), client.Limit(page), client.Continue(next),
			client.MatchingFields{"involvedObject.kind": "Node", "type": corev1.EventTypeWarning})
		if err != nil {
			return nil, err
		}
		for _, e := range all.Items {
			had := newest[e.InvolvedObject.UID]
			if ofManager(&e) && (had == nil || timeOf(had).Before(timeOf(&e))) {
				newest[e.InvolvedObject.UID] = &e
			}
		}
		if next = all.Continue; next == "" {
			return newest, nil
		}
	}
}

func ofManager(e *corev1.Event) bool {
	from := cmp.Or(e.ReportingController, e.Source.Component)
	return strings.Contains(from, "cloud") && from != Component
}

func timeOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
