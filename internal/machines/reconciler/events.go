// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Warner is a backend with reasons of its own that need attention. They are reported
// in Events.
type Warner interface{ Warns(reason string) bool }

// saveAndReport writes an object and emits Events for what has changed.
func saveAndReport[T object](ctx context.Context, d *patcher[T], b Base) error {
	before := ready(d.stored)
	wasThere := isProvisioned(d.stored)
	if err := d.save(ctx); err != nil {
		return err
	}
	if !wasThere && isProvisioned(d.desired) {
		b.emit(d.desired, corev1.EventTypeNormal, ProvisionedCondition, "Provision", "what Cluster API waits for is there")
	}
	if after := ready(d.desired); after != before && b.warns(after.Reason) {
		b.warn(d.desired, after.Reason, after.Message)
	}
	return nil
}

// clearWarnings forgets the warnings of an object that was observed to be healthy.
func (b *Base) clearWarnings(o object) {
	if ready(o).Reason == "" {
		b.deduper.forget(client.ObjectKeyFromObject(o))
	}
}

// ready returns why an object is not ready: reason and message of its condition
// Ready, or of Deleting. Both are empty if it is ready.
func ready(o object) (c struct{ Reason, Message string }) {
	if r := condition(o, clusterv1.ReadyCondition); r != nil && r.Status != metav1.ConditionTrue {
		c.Reason, c.Message = r.Reason, r.Message
	}
	if d := condition(o, clusterv1.DeletingCondition); d != nil && d.Status == metav1.ConditionTrue {
		c.Reason, c.Message = d.Reason, d.Message
	}
	return c
}

// isProvisioned reports whether an object has the condition Provisioned.
func isProvisioned(o object) bool {
	c := condition(o, ProvisionedCondition)
	return c != nil && c.Status == metav1.ConditionTrue
}

// warns reports whether a reason needs attention.
func (b *Base) warns(reason string) bool {
	for _, c := range classes {
		if c.reason == reason {
			return true
		}
	}
	switch reason {
	case ReasonBootstrapSecretMissing, ReasonBootstrapSecretForbidden, ReasonBootstrapDataInvalid, ReasonBootstrapDataTooLarge, ReasonBootstrapFormatUnknown,
		ReasonFailureDomainUnknown, ReasonIdentityTaken, ReasonInfrastructureOfAnother, ReasonInstanceGone, ReasonInstanceStopped, ReasonRequestRefused:
		return true
	}
	return b.ofBackend(reason)
}

// ofBackend reports whether the reason is one of the backend's own.
func (b *Base) ofBackend(reason string) bool { return b.warner != nil && b.warner.Warns(reason) }

// warn emits a Warning Event unless it repeats an earlier one.
func (b *Base) warn(o client.Object, reason, message string) {
	if b.deduper.isNew(o, reason, message, b.Now()) {
		b.emit(o, corev1.EventTypeWarning, reason, "Reconcile", message)
	}
}

func (b *Base) emit(o client.Object, kind, reason, action, note string) {
	if b.Events != nil {
		b.Events.Eventf(o, nil, kind, reason, action, "%s", clip(note))
	}
}

// An unchanged warning is repeated after an hour and one with another message
// after ten minutes; a message may contain a changing number. A warning about a
// changed object is emitted at once.
const (
	repeatUnchanged = time.Hour
	repeatChanged   = 10 * time.Minute
)

// eventDeduper records which warnings were emitted for the objects of one kind.
// Comparing conditions is not enough: each new attempt changes them for a moment.
type eventDeduper struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]*reported
}

// reported holds the warnings of one object by reason.
type reported struct {
	uid      types.UID
	warnings map[string]warning
}

type warning struct {
	message    string
	generation int64
	at         time.Time
}

// isNew reports whether a warning has to be emitted, and records it as emitted.
func (d *eventDeduper) isNew(o client.Object, reason, message string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := client.ObjectKeyFromObject(o)
	if d.objects == nil {
		d.objects = map[types.NamespacedName]*reported{}
	}
	if d.objects[name] == nil || d.objects[name].uid != o.GetUID() {
		d.objects[name] = &reported{uid: o.GetUID(), warnings: map[string]warning{}}
	}
	last, ok := d.objects[name].warnings[reason]
	ago := now.Sub(last.at)
	if ok && ago < repeatUnchanged && (last.message == message || last.generation == o.GetGeneration() && ago < repeatChanged) {
		return false
	}
	d.objects[name].warnings[reason] = warning{message, o.GetGeneration(), now}
	return true
}

// forget drops the warnings of an object that is healthy, or gone.
func (d *eventDeduper) forget(name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.objects, name)
}

// warnOf emits a warning for an error that no condition shows: the conditions of a
// provisioned object do not change while it cannot be observed.
func (b *Base) warnOf(o object, err error) {
	if reason := reasonOf(err); isProvisioned(o) && b.ofBackend(reason) && ready(o).Reason != reason {
		b.warn(o, reason, messageOf(err))
	}
}
