// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		b.Events.Emit(d.desired, nil, corev1.EventTypeNormal, ProvisionedCondition, "Provision", "what Cluster API waits for is there")
	}
	if after := ready(d.desired); after != before && b.warns(after.Reason) {
		b.warn(d.desired, after.Reason, after.Message)
	}
	return nil
}

// clearWarnings forgets the warnings of an object that was observed to be healthy.
func (b *Base) clearWarnings(o object) {
	if ready(o).Reason == "" {
		b.Events.Clear(o)
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

func isProvisioned(o object) bool {
	c := condition(o, ProvisionedCondition)
	return c != nil && c.Status == metav1.ConditionTrue
}

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

func (b *Base) ofBackend(reason string) bool { return b.warner != nil && b.warner.Warns(reason) }

func (b *Base) warn(o client.Object, reason, message string) {
	b.Events.Warn(o, reason, "Reconcile", message)
}

// warnOf emits a warning for an error that no condition shows: the conditions of a
// provisioned object do not change while it cannot be observed.
func (b *Base) warnOf(o object, err error) {
	if reason := reasonOf(err); isProvisioned(o) && b.ofBackend(reason) && ready(o).Reason != reason {
		b.warn(o, reason, messageOf(err))
	}
}
