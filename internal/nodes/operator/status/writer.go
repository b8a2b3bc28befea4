// SPDX-License-Identifier: Apache-2.0

// Package status writes the operator's status into its ClusterOperator. Several
// programs do, so each owns its own conditions and nothing else: the API server
// merges what they apply, and none undoes what another has written.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is that of the ClusterOperator.
const Name = "cloud-controller-manager"

// Writer writes the conditions of one owner.
type Writer struct {
	// Client writes; Reader reads from the API server itself, since what is
	// written depends on what was written before.
	Client client.Client
	Reader client.Reader
	// Owner is under what name the API server notes who has applied what. Owns
	// are the conditions that are applied under it.
	Owner string
	Owns  []configv1.ClusterStatusConditionType
	// OwnsVersions says whether versions and relatedObjects are this owner's
	// too.
	OwnsVersions bool
	Now          func() time.Time
}

// Change is what is to be different. What it does not name stays.
type Change struct {
	// Conditions have no time: that is when their status became another.
	Conditions []configv1.ClusterOperatorStatusCondition
	// Versions and Related are left alone when nil.
	Versions []configv1.OperandVersion
	Related  []configv1.ObjectReference
}

// Get returns the ClusterOperator, which it makes when there is none.
func (w *Writer) Get(ctx context.Context) (*configv1.ClusterOperator, error) {
	var o configv1.ClusterOperator
	err := w.Reader.Get(ctx, types.NamespacedName{Name: Name}, &o)
	if !apierrors.IsNotFound(err) {
		return &o, wrap("read", err)
	}
	o = configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: Name}}
	err = w.Client.Create(ctx, &o, client.FieldOwner(w.Owner))
	if apierrors.IsAlreadyExists(err) { // another process created it first
		err = w.Reader.Get(ctx, types.NamespacedName{Name: Name}, &o)
	}
	return &o, wrap("create", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("failed to %s ClusterOperator %s: %w", what, Name, err)
}

// Change applies the conditions that choose returns for the ClusterOperator as it is.
func (w *Writer) Change(ctx context.Context, choose func(is *configv1.ClusterOperator) []configv1.ClusterOperatorStatusCondition) error {
	is, err := w.Get(ctx)
	if err != nil {
		return err
	}
	return w.Apply(ctx, is, Change{Conditions: choose(is)})
}

// Apply makes the ClusterOperator, which was just read, be as the change says. Nothing is
// written when it is.
func (w *Writer) Apply(ctx context.Context, o *configv1.ClusterOperator, c Change) error {
	wanted, changed := w.merge(o.Status, c)
	if !changed {
		return nil
	}
	status, err := statusOf(wanted)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": Name}, "status": status}}
	u.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterOperator"))
	return wrap("write the status of", w.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(w.Owner), client.ForceOwnership))
}

// statusOf returns what is applied. Empty texts are in it, too: left out, they
// would stay what somebody else has written.
func statusOf(s configv1.ClusterOperatorStatus) (map[string]any, error) {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
	if err != nil {
		return nil, err
	}
	conditions := make([]any, len(s.Conditions))
	for i, c := range s.Conditions {
		conditions[i] = map[string]any{
			"type": string(c.Type), "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
		}
	}
	u["conditions"] = conditions
	delete(u, "extension") // is nobody's
	return u, nil
}

// merge returns all that this owner applies, since what is left out of it would
// be removed, and whether anything of it is new.
func (w *Writer) merge(is configv1.ClusterOperatorStatus, c Change) (configv1.ClusterOperatorStatus, bool) {
	var s configv1.ClusterOperatorStatus
	changed := false
	for _, t := range w.Owns {
		old, new := find(is.Conditions, t), find(c.Conditions, t)
		if new == nil && old != nil {
			s.Conditions = append(s.Conditions, *old)
		}
		if new == nil {
			continue
		}
		// The time is that at which the status became what it is.
		new.LastTransitionTime = metav1.NewTime(w.Now().Truncate(time.Second))
		if old != nil && old.Status == new.Status {
			new.LastTransitionTime = old.LastTransitionTime
		}
		changed = changed || old == nil || *new != *old
		s.Conditions = append(s.Conditions, *new)
	}
	if w.OwnsVersions {
		s.Versions, s.RelatedObjects = is.Versions, is.RelatedObjects
		if c.Versions != nil && !slices.Equal(c.Versions, is.Versions) {
			s.Versions, changed = c.Versions, true
		}
		if c.Related != nil && !slices.Equal(c.Related, is.RelatedObjects) {
			s.RelatedObjects, changed = c.Related, true
		}
	}
	return s, changed
}

// Drop removes a condition that nobody writes any more, whoever wrote it.
func (w *Writer) Drop(ctx context.Context, o *configv1.ClusterOperator, t configv1.ClusterStatusConditionType) error {
	at := slices.IndexFunc(o.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == t })
	if at < 0 {
		return nil
	}
	path := fmt.Sprintf("/status/conditions/%d", at)
	patch, err := json.Marshal([]map[string]any{
		// Conditions may have moved since they were read.
		{"op": "test", "path": path + "/type", "value": t},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	return wrap("write the status of", w.Client.Status().Patch(ctx, o.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(w.Owner)))
}

func find(conditions []configv1.ClusterOperatorStatusCondition, t configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	at := slices.IndexFunc(conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == t })
	if at < 0 {
		return nil
	}
	return &conditions[at]
}

func condition(t configv1.ClusterStatusConditionType, status bool, reason, message string) configv1.ClusterOperatorStatusCondition {
	c := configv1.ClusterOperatorStatusCondition{Type: t, Status: configv1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = configv1.ConditionTrue
	}
	return c
}
