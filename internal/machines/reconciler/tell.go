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

// Warner is a backend with reasons of its own that need somebody's attention:
// they are reported in Events.
type Warner interface{ Warns(reason string) bool }

// saveAndTell writes an object, and Events of what is new with it.
func saveAndTell[T object](ctx context.Context, d *patcher[T], b Base) error {
	before := ready(d.stored)
	wasThere := there(d.stored)
	if err := d.save(ctx); err != nil {
		return err
	}
	if !wasThere && there(d.now) {
		b.tell(d.now, corev1.EventTypeNormal, ProvisionedCondition, "Provision", "what Cluster API waits for is there")
	}
	if after := ready(d.now); after != before && b.warns(after.Reason) {
		b.warn(d.now, after.Reason, after.Message)
	}
	return nil
}

// looked records that an object could be observed: if it is healthy, its
// warnings have ended.
func (b *Base) looked(o object) {
	if ready(o).Reason == "" {
		b.deduper.forget(client.ObjectKeyFromObject(o))
	}
}

// ready returns an object's condition Ready.
func ready(o object) (c struct{ Reason, Message string }) {
	if r := condition(o, clusterv1.ReadyCondition); r != nil && r.Status != metav1.ConditionTrue {
		c.Reason, c.Message = r.Reason, r.Message
	}
	if d := condition(o, clusterv1.DeletingCondition); d != nil && d.Status == metav1.ConditionTrue {
		c.Reason, c.Message = d.Reason, d.Message
	}
	return c
}

// there reports whether an object is provisioned.
func there(o object) bool {
	c := condition(o, ProvisionedCondition)
	return c != nil && c.Status == metav1.ConditionTrue
}

// warns reports whether a reason needs somebody's attention.
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

// warn emits a Warning Event for a reason that needs somebody's attention, unless it
// is a repetition.
func (b *Base) warn(o client.Object, reason, message string) {
	if b.deduper.isNew(o, reason, message, b.Now()) {
		b.tell(o, corev1.EventTypeWarning, reason, "Reconcile", message)
	}
}

func (b *Base) tell(o client.Object, kind, reason, action, note string) {
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

// eventDeduper knows which warnings were emitted already for the objects of one
// kind. Conditions alone are not enough: a new attempt changes them for a
// moment.
type eventDeduper struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]*reported
}

// reported are the warnings of one object, by reason.
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

// warnOf reports an error that no condition shows: the conditions of a
// provisioned object stay while it cannot be observed.
func (b *Base) warnOf(o object, err error) {
	if reason := reasonOf(err); there(o) && b.ofBackend(reason) && ready(o).Reason != reason {
		b.warn(o, reason, messageOf(err))
	}
}
